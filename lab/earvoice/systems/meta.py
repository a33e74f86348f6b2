"""Han 2020, speech: a unidirectional wait-k Transformer, with and without meta-training.

wMT is meta-trained on recognition, text translation and speech translation, then fine-tuned on
speech translation; woMT takes as many gradients of speech translation alone. Both languages share
one vocabulary, and input and output share one embedding.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from earvoice.corpus.states import mixed_precision
from earvoice.models.checkpoint import save_checkpoint
from earvoice.models.config import (
    FRAME_SHIFT_MS,
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.conformer import subsampled_lengths
from earvoice.models.text import source_pieces
from earvoice.models.transformer import TokenPositions
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.systems.han import read_sentences
from earvoice.systems.learning import DROPOUT, descend, drawn, learn, padded_texts, text_loss
from earvoice.systems.turns import SystemReport, features_of, normalised_features, read_turns
from earvoice.systems.wait_k import MOST_PIECES
from earvoice.training.meta import meta_backward
from earvoice.training.schedule import report
from earvoice.training.vocabulary import pieces_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

ENCODER = EncoderConfig(
    architecture="transformer",
    d_model=192,
    heads=4,
    ffn_multiplier=3,
    layers=3,
    ctc_layer=3,
    compression="none",
    subsampler=SubsamplerConfig(layers=3, channels=256),
    causal=True,
)
"""Three convolutions of stride 2, as in the paper, along time."""
DECODER = DecoderConfig(layers=3, heads=4, ffn_width=576, tied_embeddings=True)
LANGUAGES = (TargetLanguage("de", "<de>"), TargetLanguage("en", "<en>"))
PIECES = 1500
TURNS, TRANSLATED, SENTENCES = 1200, 400, 30_000
"""Spoken turns for recognition; how many of them for translation too; sentences of text."""
LEARNED, HELD_OUT = 50, 150
"""How many training and held-out turns are decoded in the end."""
MOST_WORDS = 8
META_STEPS, TUNE_STEPS = 900, 500
ALPHA = 0.1
"""The rate of equation 1."""
PEAK_RATE = 1e-3
FIRST_STEP = 1
ROOM_STATES = 400
WAIT_K = 5
HEARD_STRIDE = 3
"""For speech, states of 80 ms per piece; for text the stride is one piece."""


@dataclass(frozen=True)
class Example:
    source: torch.Tensor
    """[T, 80] features of speech, or [P] int64 pieces of text."""
    tag: int
    pieces: Sequence[int]

    @property
    def is_heard(self) -> bool:
        return self.source.ndim > 1

    @property
    def state_count(self) -> int:
        length = torch.tensor(len(self.source))
        return int(subsampled_lengths(length, ENCODER.subsampler.layers if self.is_heard else 0))


def meta_config(pieces: int, target_pieces: int) -> ModelConfig:
    return ModelConfig(
        "han-2020-speech",
        "1",
        "en",
        LANGUAGES,
        pieces,
        target_pieces,
        encoder=ENCODER,
        decoder=DECODER,
        policy_defaults=PolicyDefaults("strided_wait_k", attention_layer=2),
    )


def encoded(
    network: SpeechTranslationModel, sources: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Encode sources that are all speech or all text: [B, S, d] states, [B] numbers, the stride."""
    encoder = network.papers_encoder
    lengths = torch.tensor([len(source) for source in sources])
    padded = nn.utils.rnn.pad_sequence(list(sources), batch_first=True)
    if padded.ndim > 2:  # noqa: PLR2004 - features have an axis of their own
        memory = encoder(padded, lengths)
        return memory.states, memory.lengths, HEARD_STRIDE
    positions = TokenPositions(ENCODER.d_model).up_to(padded.shape[1], padded.device)
    hidden = encoder.dropout(network.transformer_decoder.embed(padded, positions))
    for layer in encoder.layers:
        hidden = layer(hidden)
    return encoder.layer_norm(hidden), lengths, 1


def visible_states(tokens: int, states: int, stride: int) -> torch.Tensor:
    """[1, L, S] bool: g(t) = (k + t - 1) s states for piece t; row 0 precedes the language tag."""
    numbers = torch.arange(tokens).clamp(min=1)
    return torch.arange(states) < stride * (WAIT_K + numbers[:, None] - 1)[None]


def loss_of(network: SpeechTranslationModel, examples: Sequence[Example]) -> torch.Tensor:
    tokens = padded_texts([[each.tag, *each.pieces] for each in examples])
    with mixed_precision():
        states, lengths, stride = encoded(network, [each.source for each in examples])
        given = tokens[:, :-1].clamp(min=0)
        visible = visible_states(given.shape[1], states.shape[1], stride)
        logits = network.transformer_decoder(given, states, lengths, visible)
    return text_loss(logits[:, 1:], tokens[:, 2:])


def batches_of(
    examples: Sequence[Example], generator: np.random.Generator
) -> Iterator[list[Example]]:
    sizes = [max(each.state_count, len(each.pieces) + 2) for each in examples]
    return drawn(examples, sizes, ROOM_STATES, generator)


def train(
    network: SpeechTranslationModel, examples: Sequence[Example], step_count: int, seed: int = 1
) -> list[float]:
    parts = batches_of(examples, np.random.default_rng(seed))
    return learn(network, parts, partial(loss_of, network), step_count, PEAK_RATE, FIRST_STEP)


def meta_train(
    network: SpeechTranslationModel,
    tasks: Sequence[Sequence[Example]],
    step_count: int,
    seed: int = 1,
) -> list[float]:
    """Meta-train: each step draws a task, and two batches of it."""
    generator = np.random.default_rng(seed)
    parts = [batches_of(examples, generator) for examples in tasks]
    parameters = list(network.parameters())

    def backward() -> float:
        task = parts[generator.integers(len(parts))]
        first, second = (partial(loss_of, network, part) for part in islice(task, 2))
        return meta_backward(parameters, first, second, ALPHA)

    return descend(network, backward, step_count, PEAK_RATE, FIRST_STEP)


@torch.inference_mode()
def write(
    network: SpeechTranslationModel, features: torch.Tensor, tag: int
) -> list[tuple[int, float]]:
    """Decode one recording; return each piece, and the ms of audio heard by then.

    The encoder sees nothing later, so the states of a prefix are a prefix of all states.
    """
    states, _, stride = encoded(network, [features])
    tokens, written = [EOS, tag], list[tuple[int, float]]()
    state_ms = FRAME_SHIFT_MS << ENCODER.subsampler.layers
    while len(written) < MOST_PIECES:
        heard = min(stride * (WAIT_K + len(written)), states.shape[1])
        given = torch.tensor([tokens])
        visible = visible_states(len(tokens), states.shape[1], stride)
        logits = network.transformer_decoder(
            given, states, torch.tensor([states.shape[1]]), visible
        )[0, -1]
        logits[:EOS] = -torch.inf
        if heard < states.shape[1]:
            logits[EOS] = -torch.inf
        piece = int(logits.argmax())
        if piece == EOS:
            break
        tokens.append(piece)
        written.append((piece, float(heard * state_ms)))
    return written


def run(options: argparse.Namespace) -> None:
    """Run both trainings, score each on training and held-out turns, and compare them."""
    text = options.data / "text"
    turns = read_turns(text, "train", TURNS, MOST_WORDS)
    held_out = read_turns(text, "dev", HELD_OUT, MOST_WORDS)
    sentences = random.Random(1).sample(read_sentences(text, 1)[0], SENTENCES)
    texts = [(each.english, each.german) for each in sentences]
    model = pieces_of([*chain(*texts), *(turn.english for turn in turns)], PIECES)
    source, vocabulary = Vocabulary(model), Vocabulary(model, [each.tag for each in LANGUAGES])
    german, english = (vocabulary.id_of(each.tag) for each in LANGUAGES)
    normalisation, heard = normalised_features(turns)
    spoken = list(zip(turns, heard, strict=True))
    tasks = {
        "recognition": [Example(h, english, source.encode(t.english)) for t, h in spoken],
        "text translation": [
            Example(
                torch.tensor(source_pieces(each.english.split(), source, ended=True)[0]),
                german,
                source.encode(each.german),
            )
            for each in sentences
        ],
        "speech translation": [
            Example(h, german, source.encode(t.german)) for t, h in spoken[:TRANSLATED]
        ],
    }
    report("; ".join(f"{name}: {len(examples)}" for name, examples in tasks.items()))
    asked = {
        "learned": (turns[:LEARNED], heard[:LEARNED]),
        "held out": (held_out, [features_of(turn, normalisation) for turn in held_out]),
    }
    told_of = {which: told for which, (told, _) in asked.items()}
    shown = SystemReport("meta", "Han 2020, speech", turns[:TRANSLATED], told_of)
    config = meta_config(len(source), len(vocabulary))
    draws: dict[tuple[str, str], np.ndarray] = {}
    for name in ("wMT", "woMT"):
        torch.manual_seed(1)
        network, began = SpeechTranslationModel(config, dropout=DROPOUT), time.process_time()
        course = _trained(name, network, tasks)
        seconds = time.process_time() - began
        report(f"{name}: loss {course[0]:.2f} to {fmean(course[-20:]):.2f}, {seconds:.0f} s")
        for which, (told, sounds) in asked.items():
            written = [write(network, sound, german) for sound in sounds]
            draws[name, which] = shown.spoken_row(which, told, written, vocabulary, trained=name)
        save_checkpoint(
            options.work / f"meta-{name}",
            config,
            network.state_dict(),
            normalisation=normalisation,
            source_model=model,
            target_model=model,
        )
    for which in asked:
        shown.difference(f"{which}: wMT minus woMT", draws["wMT", which] - draws["woMT", which])
    shown.save(options.work)


def _trained(
    name: str, network: SpeechTranslationModel, tasks: Mapping[str, Sequence[Example]]
) -> list[float]:
    """Train for equally many gradients: a meta-step takes two."""
    target = tasks["speech translation"]
    if name == "woMT":
        return train(network, target, 2 * META_STEPS + TUNE_STEPS)
    course = meta_train(network, list(tasks.values()), META_STEPS)
    return course + train(network, target, TUNE_STEPS)
