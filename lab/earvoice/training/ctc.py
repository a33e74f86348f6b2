"""Teach the CTC branch beside the frozen encoder: which frames belong to which piece."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.corpus.states import pretrained_encoder
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.whisper import CtcBranch, WhisperEncoder
from earvoice.runtime.files import atomic_write
from earvoice.training.data import batches
from earvoice.training.schedule import optimiser, rate, report

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.training.data import Heard

ROOM_FRAMES = 5000
PEAK_RATE = 1.2e-3
DROPOUT = 0.1


def with_branch(vocabulary: Vocabulary, dropout: float = 0.0) -> WhisperEncoder:
    """The pretrained encoder with an untrained branch for these pieces."""
    encoder = copy.deepcopy(pretrained_encoder())
    encoder.ctc = CtcBranch(encoder.config, len(vocabulary) + 1, dropout)
    return encoder


def train_ctc(
    clips: list[Heard], vocabulary: Vocabulary, run: Path, seconds: float, seed: int = 1
) -> None:
    """Go on from `run`'s last state, for so many seconds of processor in all."""
    encoder = with_branch(vocabulary, DROPOUT)
    branch = encoder.ctc.train()
    targets = [vocabulary.encode(clip.said or "") for clip in clips]
    known = [
        i for i, clip in enumerate(clips) if clip.said is not None and len(targets[i]) < clip.frames
    ]
    sizes = [clips[i].joined for i in known]
    generator = np.random.default_rng(seed)
    optim = optimiser(branch.parameters(), PEAK_RATE)
    path, used, step, mean = run / "ctc.pt", 0.0, 0, 0.0
    if path.exists():
        kept = torch.load(path, weights_only=True)
        branch.load_state_dict(kept["branch"])
        if "optimiser" in kept:
            optim.load_state_dict(kept["optimiser"])
        used, step = kept["used"], kept["step"]
        generator = np.random.default_rng((seed, step))

    def save() -> None:
        state = {"branch": branch.state_dict(), "optimiser": optim.state_dict()}
        with atomic_write(path) as partial:
            torch.save(state | {"used": used, "step": step}, partial)

    began = time.process_time() - used
    for part in batches(sizes, ROOM_FRAMES, generator):
        used = time.process_time() - began
        if used > seconds:
            break
        rows = [known[i] for i in part]
        joined = nn.utils.rnn.pad_sequence(
            [masked(clips[i].load(), generator) for i in rows], batch_first=True
        )
        lengths = torch.tensor([clips[i].joined for i in rows])
        with torch.autocast("cpu", torch.bfloat16):
            log_probs = encoder.label(joined, lengths)
        loss = functional.ctc_loss(
            log_probs.float().transpose(0, 1),
            torch.tensor([piece for i in rows for piece in targets[i]]),
            lengths,
            torch.tensor([len(targets[i]) for i in rows]),
            blank=len(vocabulary), zero_infinity=True,
        )  # fmt: skip
        optim.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(branch.parameters(), 1.0)
        for group in optim.param_groups:
            group["lr"] = PEAK_RATE * rate(step, used / seconds)
        optim.step()
        step += 1
        mean = 0.98 * mean + 0.02 * float(loss) if mean else float(loss)
        if step % 100 == 0:
            report(f"{step} {used:.0f} s loss {mean:.3f}")
            save()
    save()


def masked(joined: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """Up to three stretches of 0.4 s are silenced (SpecAugment, Park 2019, over time alone)."""
    for _ in range(generator.integers(0, 4)):
        begin = generator.integers(0, len(joined))
        joined[begin : begin + generator.integers(1, 11)] = 0
    return joined
