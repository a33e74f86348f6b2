"""Han 2020, text to text: a wait-k Transformer with a unidirectional encoder, and wait-k by words.

One network is trained for wait-k, another with the whole source; both are decoded with several k.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from earvoice.corpus.states import mixed_precision
from earvoice.corpus.texts import read_pairs
from earvoice.evaluation.metrics import length_adaptive_average_lagging
from earvoice.models.checkpoint import save_checkpoint
from earvoice.models.config import DecoderConfig, ModelConfig, PolicyDefaults, TargetLanguage
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.text import TextConfig, source_pieces
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.policies.base import Heard
from earvoice.systems.learning import DROPOUT, drawn, learn, padded_texts, text_loss
from earvoice.systems.turns import SystemReport, Turn
from earvoice.systems.wait_k import Step, told, write
from earvoice.training.schedule import report
from earvoice.training.vocabulary import pieces_of
from earvoice.training.wait_k_mask import wait_k_mask

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from earvoice.models.translation import SightMask

ENCODER = TextConfig(d_model=192, layers=3, heads=4, ffn_width=576)
DECODER = DecoderConfig(layers=3, heads=4, ffn_width=576, tied_embeddings=True)
"""Small; the paper's size is `TextConfig()` with `DecoderConfig()`: eight layers and six."""
SOURCES = ("tatoeba", "restaurant", "customer-chat")
MOST_WORDS = 8
PIECES = 2000
PEAK_RATE = 2e-3
ROOM_PIECES = 1500
STEPS, HELD_OUT = 900, 150
TRAINED = (3, None)
"""k; None trains with the whole source."""
WRITTEN = (1, 3, 5, None)

Example = tuple[Sequence[int], Sequence[int]]
"""Pieces of the source, including its end, and of the translation, without its end."""


def read_sentences(text: Path, count: int) -> tuple[list[Turn], list[Turn]]:
    """Sentences of at most eight words for training, and `count` that are held out."""
    learned, kept = list[Turn](), list[Turn]()
    for pair in read_pairs(text):
        german = pair.translations.get("de", "")
        if german and pair.source in SOURCES and len(pair.english.split()) <= MOST_WORDS:
            (learned if pair.split == "train" else kept).append(Turn(pair.english, german))
    return learned, random.Random(1).sample(kept, count)


def han_config(sources: int, targets: int) -> ModelConfig:
    return ModelConfig(
        "han-2020",
        "1",
        "en",
        (TargetLanguage("de"),),
        sources,
        targets,
        encoder=ENCODER,
        decoder=DECODER,
        policy_defaults=PolicyDefaults("wait_k", attention_layer=2, segment_ms=250),
    )


def train(
    config: ModelConfig,
    examples: Sequence[Example],
    mask: SightMask | None,
    step_count: int,
    peak_rate: float = PEAK_RATE,
    seed: int = 1,
) -> tuple[SpeechTranslationModel, list[float]]:
    """Train with cross-entropy; each target word sees the source that `mask` allows.

    Returns:
        The network, and the loss of each step.
    """
    torch.manual_seed(seed)
    network = SpeechTranslationModel(config, dropout=DROPOUT)
    sizes = [max(len(source), len(target)) for source, target in examples]
    parts = drawn(examples, sizes, ROOM_PIECES, np.random.default_rng(seed))
    loss_of = partial(_loss, network, mask)
    return network, learn(network, parts, loss_of, step_count, peak_rate)


def _loss(
    network: SpeechTranslationModel, mask: SightMask | None, examples: Sequence[Example]
) -> torch.Tensor:
    sources = [torch.tensor(source)[:, None] for source, _ in examples]
    padded = nn.utils.rnn.pad_sequence(sources, batch_first=True)
    tokens = padded_texts([target for _, target in examples])
    with mixed_precision():
        lengths = torch.tensor([len(source) for source in sources])
        logits, _ = network(padded, lengths, tokens[:, :-1].clamp(min=0), mask)
    return text_loss(logits, tokens[:, 1:])


def translate(
    network: SpeechTranslationModel,
    source: Vocabulary,
    target: Vocabulary,
    english: str,
    k: int | None,
) -> tuple[str, list[int]]:
    """Translate with wait-k as the services do, or with the whole source if k is None.

    Returns:
        The text, and for each of its words how many words had been read.
    """
    words, steps = english.split(), list[Step]()
    for count in range(1, len(words) + 1):
        pieces, _ = source_pieces(words[:count], source, ended=count == len(words))
        states = network.encoder.encode(torch.tensor(pieces)[:, None]).states
        steps.append((Heard(0.0, len(pieces), count), states, pieces))
    written = write(network.transformer_decoder, target, steps, k)
    text = target.decode(token.token_id for token, _ in written)
    return text, [step + 1 for token, step in written if token.starts_word]


def lag_words(delays_words: Sequence[int], sentence: Turn) -> float | None:
    """LAAL in words; None if nothing is written."""
    if not delays_words:
        return None
    return length_adaptive_average_lagging(
        delays_words, len(sentence.english.split()), len(sentence.german.split())
    )


def run(options: argparse.Namespace) -> None:
    """Train both, translate the held-out sentences with every k, save checkpoints and texts."""
    learned, held_out = read_sentences(options.data / "text", HELD_OUT)
    report(f"{len(learned)} sentences, {len(held_out)} held out")
    shown = SystemReport("han", "Han 2020, text", learned, {"held out": held_out})
    unchanged = [each.english for each in held_out]
    shown.row("held out", unchanged, trained="none: the source as it is")
    models = [
        pieces_of((each.english for each in learned), PIECES),
        pieces_of((each.german for each in learned), PIECES),
    ]
    source, target = map(Vocabulary, models)
    config = han_config(len(source), len(target))
    examples = [
        (source_pieces(each.english.split(), source, ended=True)[0], target.encode(each.german))
        for each in learned
    ]
    _write_texts(options.work, held_out)
    bleu: dict[tuple[int | None, int | None], np.ndarray] = {}
    for trained in TRAINED:
        mask = trained and wait_k_mask(trained, source, target, reads_words=True)
        network, course = train(config, examples, mask or None, STEPS)
        name = told(trained)
        ends = fmean(course[:20]), fmean(course[-20:])
        report(f"trained with {name}: loss {ends[0]:.2f} to {ends[1]:.2f}")
        for k in WRITTEN:
            texts, delays = zip(
                *(translate(network, source, target, each.english, k) for each in held_out),
                strict=True,
            )
            bleu[trained, k] = shown.row(
                "held out",
                texts,
                list(map(lag_words, delays, held_out)),
                trained=name,
                written=told(k),
                lag_unit="words",
            )
        save_checkpoint(
            options.work / f"han-{trained or 'all'}",
            config,
            network.state_dict(),
            normalisation=FeatureNormalisation.identity(),
            source_model=models[0],
            target_model=models[1],
        )
    for k in WRITTEN:
        compared = f"trained with k 3 minus all of the source, written with {told(k)}"
        shown.difference(compared, bleu[TRAINED[0], k] - bleu[TRAINED[1], k])
    shown.save(options.work)


def _write_texts(work: Path, sentences: Sequence[Turn]) -> None:
    """Write the files that `earvoice evaluate --text` reads."""
    work.mkdir(parents=True, exist_ok=True)
    for tag, texts in (
        ("en", [each.english for each in sentences]),
        ("de", [each.german for each in sentences]),
    ):
        (work / f"held-out.{tag}").write_text("\n".join(texts) + "\n", encoding="utf8")
