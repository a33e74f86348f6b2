"""States imagined from a text: so the decoder learns to translate what nobody has spoken.

A small network learns from the clips what states the encoder gives where CTC hears which pieces.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.models.transformer import TokenPositions, TransformerLayer
from earvoice.training.data import D_MODEL, batches
from earvoice.training.schedule import optimiser, rate, report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.decoder import Memory

WIDTH = 256
LAYERS = 3
PEAK_RATE = 1e-3
ROOM_STATES = 2500
MOST_BLANKS = 16
MOST_STATES = 500


class Bridge(nn.Module):
    """From CTC labels, blanks among them, to states."""

    deviation: torch.Tensor
    """[d] of what the network does not know, by dimension."""
    blanks: torch.Tensor
    """[2, most + 1] how often so many blank states follow a piece: within a word, and after it."""
    before: torch.Tensor
    """[most + 1] the same before the first piece."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(labels, WIDTH)
        self.layers = nn.ModuleList(TransformerLayer(WIDTH, 4, 1024, 0.0) for _ in range(LAYERS))
        self.layer_norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, D_MODEL)
        self.positions = TokenPositions(WIDTH)
        self.register_buffer("deviation", torch.ones(D_MODEL))
        self.register_buffer("blanks", torch.ones(2, MOST_BLANKS + 1))
        self.register_buffer("before", torch.ones(MOST_BLANKS + 1))

    def forward(self, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """[B, S] int64 → [B, S, d] float32."""
        valid = torch.arange(labels.shape[1]) < lengths[:, None]
        hidden = self.embed(labels) + self.positions.up_to(labels.shape[1], labels.device)
        for layer in self.layers:
            hidden = layer(hidden, valid)
        out: torch.Tensor = self.out(self.layer_norm(hidden)).float()
        return out

    @torch.no_grad()
    def imagine(
        self, labels: Sequence[list[int]], generator: np.random.Generator
    ) -> list[torch.Tensor]:
        """[S, d] states of each, as if somebody said it, a little different each time."""
        lengths = torch.tensor(list(map(len, labels)))
        padded = nn.utils.rnn.pad_sequence(list(map(torch.tensor, labels)), batch_first=True)
        with torch.autocast("cpu", torch.bfloat16):
            states = self(padded, lengths)
        shares = torch.from_numpy(generator.uniform(0.3, 1.0, (len(labels), 1, 1))).float()
        states = states + shares * self.deviation * torch.randn_like(states)
        return [each[: len(own)] for each, own in zip(states, labels, strict=True)]

    def labels_of(
        self, english: str, source: Vocabulary, generator: np.random.Generator
    ) -> list[int] | None:
        pieces = source.encode(transcript(spoken_form(english)))
        if not pieces:
            return None
        blank = len(source)
        ends = [*map(source.starts_word, pieces[1:]), True]
        counts = self._draw(self.blanks[torch.tensor(ends).int()], generator)
        labels = [blank] * self._draw(self.before[None], generator)[0]
        for piece, following, count in zip(pieces, [*pieces[1:], -1], counts, strict=True):
            labels += [piece] + [blank] * max(count, int(piece == following))
        return labels

    @staticmethod
    def _draw(weights: torch.Tensor, generator: np.random.Generator) -> list[int]:
        """One number for each row of [n, most + 1] weights."""
        cumulated = weights.cumsum(1).numpy()
        wanted = generator.random(len(weights))[:, None] * cumulated[:, -1:]
        drawn: list[int] = (cumulated <= wanted).sum(1).tolist()
        return drawn

    def count_blanks(self, memory: Memory, source: Vocabulary) -> None:
        """How often CTC hears how many blanks where."""
        blank = len(source)
        self.blanks.zero_()
        self.before.zero_()
        for labels in memory.labels:
            count, last = 0, -1
            for label in [*labels, -1]:
                if label == blank:
                    count = min(count + 1, MOST_BLANKS)
                    continue
                if last < 0:
                    self.before[count] += 1
                else:
                    self.blanks[int(label < 0 or source.starts_word(label)), count] += 1
                count, last = 0, label


def train_bridge(
    memory: Memory, source: Vocabulary, run: Path, seconds: float, seed: int = 1
) -> Bridge:
    path = run / "bridge.pt"
    bridge = Bridge(len(source) + 1)
    if path.exists():
        bridge.load_state_dict(torch.load(path, weights_only=True))
        return bridge.eval()
    bridge.count_blanks(memory, source)
    generator = np.random.default_rng(seed)
    optim = optimiser(bridge.parameters(), PEAK_RATE)
    known = [i for i, labels in enumerate(memory.labels) if 1 < len(labels) <= MOST_STATES]
    began, mean, squares = time.process_time(), 0.0, torch.zeros(D_MODEL)
    parts = batches([memory.length(i) for i in known], ROOM_STATES, generator)
    for step, part in enumerate(parts, start=1):
        used = time.process_time() - began
        if used > seconds:
            break
        rows = [known[i] for i in part]
        labels = nn.utils.rnn.pad_sequence(
            [torch.tensor(memory.labels[i]) for i in rows], batch_first=True
        )
        wanted = nn.utils.rnn.pad_sequence([memory.of(i) for i in rows], batch_first=True)
        lengths = torch.tensor([memory.length(i) for i in rows])
        valid = torch.arange(labels.shape[1]) < lengths[:, None]
        with torch.autocast("cpu", torch.bfloat16):
            made = bridge(labels, lengths)
        error = (made - wanted)[valid].square()
        loss = error.mean()
        optim.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(bridge.parameters(), 1.0)
        for group in optim.param_groups:
            group["lr"] = PEAK_RATE * rate(step, used / seconds)
        optim.step()
        squares = 0.97 * squares + 0.03 * error.detach().mean(0)
        mean = 0.97 * mean + 0.03 * loss.item() if mean else loss.item()
        if step % 50 == 0:
            share = loss.item() / float(wanted[valid].var(0).mean())
            report(f"bridge {step} {used:.0f} s, not explained {share:.2f}")
    bridge.deviation.copy_(squares.sqrt())
    torch.save(bridge.state_dict(), path)
    return bridge.eval()
