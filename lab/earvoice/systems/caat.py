"""CAAT, a cross-attention augmented transducer (Liu 2021), over the shipped model's encoder.

At each step the source so far is encoded from its beginning, as in the encoder service; step n of
the lattice has the states of the first n + 1 steps of sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.corpus.states import mixed_precision
from earvoice.encoder.model import EncoderModel
from earvoice.models.checkpoint import load_checkpoint, read_parts, save_checkpoint
from earvoice.models.config import (
    SAMPLE_RATE_HZ,
    DecoderConfig,
    ModelConfig,
    PolicyDefaults,
    TargetLanguage,
)
from earvoice.models.speech_detector import load_speech_detector
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.systems.learning import DROPOUT, drawn, learn
from earvoice.systems.turns import SystemReport, read_turns
from earvoice.systems.wait_k import hear
from earvoice.training.schedule import report
from earvoice.training.transducer import align, expected_lag, search
from earvoice.training.vocabulary import pieces_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from earvoice.models.assembly import CheckpointParts
    from earvoice.training.transducer import Text

STEP_MS = 320
"""Liu 2021 decides every 32 frames of 10 ms."""
DECODER = DecoderConfig(layers=2, predictor_layers=2, heads=6, ffn_width=768, tied_embeddings=True)
PEAK_RATE = 1e-3
ROOM_NODES = 1500
"""Nodes of the lattices in a batch, padding included."""
OFFLINE_WEIGHT = 0.5
"""Weight of the cross-entropy with the whole source, which teaches a transducer to translate."""
MOST_PIECES = 40

Example = tuple[Sequence[torch.Tensor], Sequence[int]]
"""The source as [S, d] states of each step; the target pieces."""


def over_encoder_of(
    base: ModelConfig, name: str, pieces: int, decoder: DecoderConfig, policy: PolicyDefaults
) -> ModelConfig:
    """Configuration of a decoder into German over the encoder of another model."""
    return replace(
        base,
        name=name,
        version="1",
        target_languages=(TargetLanguage("de"),),
        target_pieces=pieces,
        decoder=decoder,
        policy_defaults=policy,
        confidence=type(base.confidence)(),
    )


def train(
    config: ModelConfig,
    examples: Sequence[Example],
    lag_weight: float,
    step_count: int,
    seed: int = 1,
) -> tuple[TransformerDecoder, list[tuple[float, float]]]:
    """Minimise -ln P(text) + `lag_weight` E[lag in steps] + the offline cross-entropy.

    Returns:
        The decoder; for each training step, the loss per piece, -ln P / U, and the lag in steps.
    """
    torch.manual_seed(seed)
    decoder, course = TransformerDecoder(config, DROPOUT), list[tuple[float, float]]()

    def loss_of(part: Sequence[Example]) -> torch.Tensor:
        loss, piece_loss, lag = _losses(decoder, part, lag_weight)
        course.append((piece_loss, lag))
        return loss

    sizes = [len(heard) * (len(pieces) + 1) for heard, pieces in examples]
    parts = drawn(examples, sizes, ROOM_NODES, np.random.default_rng(seed))
    learn(decoder, parts, loss_of, step_count, PEAK_RATE)
    return decoder, course


def _losses(
    decoder: TransformerDecoder, examples: Sequence[Example], lag_weight: float
) -> tuple[torch.Tensor, float, float]:
    heard, texts = zip(*examples, strict=True)
    memory, counts = _padded(heard)
    text = nn.utils.rnn.pad_sequence([torch.tensor(pieces) for pieces in texts], batch_first=True)
    steps = torch.tensor(list(map(len, heard)))
    lengths = torch.tensor(list(map(len, texts)))
    tokens = functional.pad(text, (1, 0), value=EOS)
    with mixed_precision():
        logits = decoder.lattice(tokens, memory, counts)
    log_probability, written = align(logits, text, steps, lengths)
    lag = expected_lag(written, steps, lengths)
    whole = logits[torch.arange(len(steps)), steps - 1]
    wanted = functional.pad(text, (0, 1)).scatter(1, lengths[:, None], EOS)
    told = torch.arange(wanted.shape[1]) <= lengths[:, None]
    offline = functional.cross_entropy(whole[told], wanted[told], reduction="sum")
    loss = (lag_weight * lag - log_probability).sum() + OFFLINE_WEIGHT * offline
    piece_loss = -float(log_probability.detach().sum() / lengths.sum())
    return loss / lengths.sum(), piece_loss, float(lag.detach().mean())


def _padded(heard: Sequence[Sequence[torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, N, S, d] states and their numbers [B, N]; a padded step has one state, of zeros."""
    steps = max(map(len, heard))
    longest = max(len(states) for each in heard for states in each)
    memory = torch.zeros(len(heard), steps, longest, heard[0][0].shape[-1])
    counts = torch.ones(len(heard), steps, dtype=torch.long)
    for row, each in enumerate(heard):
        for step, states in enumerate(each):
            memory[row, step, : len(states)] = states
            counts[row, step] = len(states)
    return memory, counts


@torch.inference_mode()
def extend(
    decoder: TransformerDecoder,
    heard: Sequence[torch.Tensor],
    step: int,
    texts: Sequence[Text],
    kept: Text = (),
) -> np.ndarray:
    """[n, V] log-probabilities of what follows texts of one length at a step.

    Args:
        decoder: in evaluation mode.
        heard: [S, d] states of each step.
        kept: pieces before each of the texts.
    """
    tokens = torch.tensor([[EOS, *kept, *text] for text in texts])
    states = heard[step].expand(len(texts), -1, -1)
    lengths = torch.full((len(texts),), states.shape[1])
    rows = decoder(tokens, states, lengths)[:, -1].log_softmax(-1)
    rows[:, :EOS] = -torch.inf
    return np.asarray(rows)


def committed(
    decoder: TransformerDecoder, heard: Sequence[torch.Tensor], beam: int
) -> list[tuple[int, int]]:
    """Each piece and the step that writes it, when the best text of every step is committed."""
    written: list[tuple[int, int]] = []
    for step, states in enumerate(heard):
        kept = tuple(piece for piece, _ in written)
        room = MOST_PIECES - len(written)
        after_kept = partial(extend, decoder, [states], kept=kept)
        ((new, _),) = search(after_kept, 1, within=beam, between=1, most_pieces=room)
        written += [(piece, step) for piece in new]
    return written


def searched(
    decoder: TransformerDecoder, heard: Sequence[torch.Tensor], within: int, between: int
) -> Text:
    """The best text of a beam search over the whole recording."""
    found = search(
        partial(extend, decoder, heard),
        len(heard),
        within=within,
        between=between,
        most_pieces=MOST_PIECES,
    )
    return found[0][0]


def export(
    parts: CheckpointParts,
    config: ModelConfig,
    decoder: TransformerDecoder,
    target: bytes,
    to: Path,
) -> None:
    """Write a checkpoint for the services, of the given encoder and decoder."""
    tensors = {name: t for name, t in parts.tensors.items() if name.startswith("encoder.")}
    tensors |= {f"decoder.{name}": t for name, t in decoder.state_dict().items()}
    save_checkpoint(
        to,
        config,
        tensors,
        normalisation=parts.normalisation,
        source_model=parts.source_vocabulary.model,
        target_model=target,
    )


TURNS, LEARNED, HELD_OUT, PIECES, STEPS = 400, 50, 100, 400, 250
LAG_WEIGHTS = (0.0, 0.3, 1.0)
BEAMS = ((1, 1), (5, 1), (5, 5))
"""Texts kept within a step, and from one step to the next."""


def run(options: argparse.Namespace) -> None:
    """Train with each lag weight on a few hundred spoken turns; report a row for each."""
    parts = read_parts(options.model)
    checkpoint = load_checkpoint(options.model)
    network = EncoderModel(checkpoint, load_speech_detector())
    turns = read_turns(options.data / "text", "train", TURNS)
    held_out = read_turns(options.data / "text", "dev", HELD_OUT)
    heard, heard_dev = (
        [[states for _, states, _ in hear(network, turn.sound, STEP_MS)] for turn in each]
        for each in (turns, held_out)
    )
    target = pieces_of([turn.german for turn in turns], PIECES)
    vocabulary = Vocabulary(target)
    policy = PolicyDefaults("transducer", attention_layer=1, segment_ms=STEP_MS)
    config = over_encoder_of(parts.config, "caat", len(vocabulary), DECODER, policy)
    examples = [
        (states, vocabulary.encode(turn.german)) for states, turn in zip(heard, turns, strict=True)
    ]
    minutes = sum(len(turn.sound) for turn in turns) / SAMPLE_RATE_HZ / 60
    report(f"{len(turns)} turns, {minutes:.1f} min of speech; {len(held_out)} held out")
    asked = (("learned", heard[:LEARNED], turns[:LEARNED]), ("held out", heard_dev, held_out))
    shown = SystemReport("caat", "Liu 2021", turns, {name: told for name, _, told in asked})
    for weight in LAG_WEIGHTS:
        decoder, course = train(config, examples, weight, STEPS)
        report(f"lag weight {weight}")
        first, last = course[:20], course[-20:]
        report(
            f"  loss a piece, first and last 20 of {len(course)} steps: "
            f"{fmean(loss for loss, _ in first):.2f} {fmean(loss for loss, _ in last):.2f}; "
            f"expected lag {STEP_MS * fmean(lag for _, lag in last):.0f} ms"
        )
        trained = f"weight of the lag {weight:g}"
        for name, states, told in asked:
            written = [
                [
                    (piece, (step + 1) * float(STEP_MS))
                    for piece, step in committed(decoder, each, 1)
                ]
                for each in states
            ]
            shown.spoken_row(name, told, written, vocabulary, trained=trained)
        for within, between in BEAMS:
            texts = [
                vocabulary.decode(searched(decoder, states, within, between))
                for states in heard_dev
            ]
            beams = f"beams of {within} within a step, {between} between"
            shown.row("held out", texts, trained=trained, written=beams)
        export(parts, config, decoder, target, options.work / f"caat-{weight}")
    shown.save(options.work)
