"""Papi 2022: trained for wait-k against trained offline, over the shipped model's encoder.

Five decoders learn the same batches and differ in the masks of their cross-attention alone; each
is written with every k. What hears is loaded, and counts words, as the encoder service does it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, islice
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.encoder.evidence import source_words
from earvoice.encoder.model import EncoderModel
from earvoice.models.checkpoint import load_checkpoint, read_parts
from earvoice.models.config import SAMPLE_RATE_HZ, DecoderConfig, PolicyDefaults, TargetLanguage
from earvoice.models.decoding import CachedDecoder
from earvoice.models.speech_detector import load_speech_detector
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.policies.base import Heard
from earvoice.systems.caat import export
from earvoice.systems.turns import (
    SILENCE_MS,
    SystemReport,
    bleu_draws,
    lag_ms,
    read_turns,
    score,
)
from earvoice.systems.wait_k import Step, write
from earvoice.training.data import batches
from earvoice.training.schedule import optimiser, rate, report
from earvoice.training.vocabulary import pieces_of
from earvoice.training.wait_k_mask import WaitKMask

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from earvoice.corpus.sound import Sound
    from earvoice.models.config import ModelConfig

TRAINED: Mapping[str, Sequence[int]] = {
    "offline": (),
    "k 3": (3,),
    "k 5": (5,),
    "k 7": (7,),
    "multi-path": (3, 5, 7),
}
"""The k of a training; one of several is drawn for each batch (Elbayad 2020)."""
WRITTEN = (3, 5, 7, None)
STEP_MS = 320
DECODER = DecoderConfig(layers=3, heads=6, ffn_width=768, tied_embeddings=True)
PEAK_RATE = 1e-3
DROPOUT = 0.1
SMOOTHING = 0.1
ROOM_STATES = 800
MOST_WORDS = 16
TURNS, HELD_OUT, PIECES, STEPS = 1000, 100, 600, 300


@dataclass(frozen=True)
class Example:
    states: torch.Tensor
    """[S, d]"""
    labels: Sequence[int]
    """CTC's, one a state."""
    pieces: Sequence[int]


class Hearing:
    """The encoder service's network; everything so far is heard again at every step."""

    def __init__(self, network: EncoderModel) -> None:
        self._network = network

    def __call__(self, sound: Sound, step_ms: float) -> list[tuple[Step, Sequence[int]]]:
        """What is known after each step of [n] float32, and the CTC label of each state."""
        network, features_of = self._network, self._network.open_features()
        step, parts = round(step_ms * SAMPLE_RATE_HZ / 1000), list[np.ndarray]()
        found: list[tuple[Step, Sequence[int]]] = []
        for end in range(step, len(sound) + step, step):
            parts.append(features_of(sound[end - step : end]))
            encoding = network.encode(np.concatenate(parts))
            word_count, has_partial, _ = source_words(
                encoding.frame_labels, network.blank, network.label_kinds, final=end >= len(sound)
            )
            states = torch.frombuffer(bytearray(encoding.states), dtype=torch.float32)
            heard = Heard(
                min(end, len(sound)) * 1000 / SAMPLE_RATE_HZ,
                len(encoding.labels),
                word_count,
                has_partial,
            )
            found.append((Step(heard, states.view(-1, network.dimension)), encoding.labels))
        return found


def papi_config(base: ModelConfig, pieces: int) -> ModelConfig:
    return replace(
        base,
        name="papi-2022",
        version="1",
        target_languages=(TargetLanguage("de"),),
        target_pieces=pieces,
        decoder=DECODER,
        policy_defaults=PolicyDefaults("wait_k", attention_layer=2, segment_ms=STEP_MS),
        confidence=type(base.confidence)(),
    )


def train(
    config: ModelConfig,
    examples: Sequence[Example],
    masks: Sequence[WaitKMask],
    step_count: int,
    seed: int = 1,
) -> tuple[CachedDecoder, list[float]]:
    """Cross-entropy, with one of the masks drawn for each batch, or with none.

    Returns:
        The decoder, and the loss of each step.
    """
    torch.manual_seed(seed)
    decoder = CachedDecoder(config, DROPOUT).train()
    optim = optimiser(decoder.parameters(), PEAK_RATE)
    drawn = np.random.default_rng(seed)
    sizes = [max(len(each.states), len(each.pieces)) for each in examples]
    course: list[float] = []
    for part in islice(batches(sizes, ROOM_STATES, np.random.default_rng(seed)), step_count):
        mask = masks[int(drawn.integers(len(masks)))] if masks else None
        loss = _loss(decoder, [examples[i] for i in part], mask)
        optim.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optim.param_groups:
            group["lr"] = PEAK_RATE * rate(len(course), len(course) / step_count)
        optim.step()
        course.append(float(loss.detach()))
    return decoder.eval(), course


def _loss(
    decoder: CachedDecoder, examples: Sequence[Example], mask: WaitKMask | None
) -> torch.Tensor:
    memory = nn.utils.rnn.pad_sequence([each.states for each in examples], batch_first=True)
    lengths = torch.tensor([len(each.states) for each in examples])
    labels = nn.utils.rnn.pad_sequence(
        [torch.tensor(each.labels) for each in examples], batch_first=True, padding_value=-1
    )
    texts = [torch.tensor([EOS, *each.pieces, EOS]) for each in examples]
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=-1)
    given = tokens[:, :-1].clamp(min=0)
    with torch.autocast("cpu", torch.bfloat16):
        logits = decoder(given, memory, lengths, mask and mask(labels, given))
    return functional.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=-1, label_smoothing=SMOOTHING
    )


def run(options: argparse.Namespace) -> None:
    """Every training, written with every k, and what offline training gains at each."""
    parts = read_parts(options.model)
    checkpoint, device = load_checkpoint(options.model), torch.device("cpu")
    hearing = Hearing(EncoderModel(checkpoint, load_speech_detector(), device=device))
    text = options.data / "text"
    turns = read_turns(text, "train", TURNS, MOST_WORDS)
    held_out = read_turns(text, "dev", HELD_OUT, MOST_WORDS)
    taught = [[turn.german for turn in turns]]
    if options.teacher:
        from earvoice.training.distillation import translations  # noqa: PLC0415 - has an extra

        english = [turn.english for turn in turns]
        taught.append(translations(options.teacher, english, options.teacher_languages))
    target = pieces_of(chain(*taught), PIECES)
    vocabulary = Vocabulary(target)
    config = papi_config(parts.config, len(vocabulary))
    examples = []
    for turn, *texts in zip(turns, *taught, strict=True):
        ((whole, labels),) = hearing(turn.recording, turn.duration_ms + 2 * SILENCE_MS)
        examples += [Example(whole.states, labels, vocabulary.encode(text)) for text in texts]
    heard = [[step for step, _ in hearing(turn.recording, STEP_MS)] for turn in held_out]
    minutes = sum(turn.duration_ms for turn in turns) / 60_000
    report(f"{len(turns)} turns, {minutes:.1f} min of speech; {len(held_out)} held out")
    shown = SystemReport("papi", "Papi 2022", turns, ("held out", held_out))
    draws: dict[tuple[str, int | None], np.ndarray] = {}
    for name, several in TRAINED.items():
        masks = [WaitKMask(k, parts.source_vocabulary, vocabulary) for k in several]
        decoder, course = train(config, examples, masks, STEPS)
        report(f"trained {name}: loss {course[0]:.2f} to {fmean(course[-20:]):.2f}")
        for k in WRITTEN:
            texts, lags_ms = [], []
            for steps, turn in zip(heard, held_out, strict=True):
                written = write(decoder, vocabulary, steps, k)
                pieces = [
                    (token.token_id, max(0.0, steps[index].heard.duration_ms - SILENCE_MS))
                    for token, index in written
                ]
                texts.append(vocabulary.decode(piece for piece, _ in pieces))
                lags_ms.append(lag_ms(pieces, vocabulary, turn))
            draws[name, k] = bleu_draws(texts, held_out)
            scores = score(texts, held_out, lags_ms)
            shown.row("held out", scores, trained=name, written=_told(k))
        to = options.work / f"papi-{name.replace(' ', '-')}"
        export(parts, config, decoder, target, to)
    for (name, k), others in draws.items():
        if name != "offline":
            compared = f"offline less {name}, written with {_told(k)}"
            shown.difference(compared, draws["offline", k] - others)
    shown.save(options.work)


def _told(k: int | None) -> str:
    return f"k {k}" if k else "all of the source"
