"""Han 2020, text to text: a wait-k Transformer whose encoder reads one way, and wait-k by words.

One network is trained for wait-k, another with all of the source; both are written with several k.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from earvoice.corpus.texts import read_pairs
from earvoice.evaluation.metrics import length_adaptive_average_lagging
from earvoice.models.checkpoint import save_checkpoint
from earvoice.models.config import DecoderConfig, ModelConfig, PolicyDefaults, TargetLanguage
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.text import TextConfig, source_pieces
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.policies.base import Heard
from earvoice.systems.turns import SystemReport, bleu_draws, score
from earvoice.systems.wait_k import Step, write
from earvoice.training.data import batches
from earvoice.training.schedule import optimiser, rate, report
from earvoice.training.vocabulary import pieces_of
from earvoice.training.wait_k_mask import WaitKMask

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.models.translation import SightMask
    from earvoice.systems.turns import Scores

ENCODER = TextConfig(d_model=192, layers=3, heads=4, ffn_width=576)
DECODER = DecoderConfig(layers=3, heads=4, ffn_width=576, tied_embeddings=True)
"""Small; a paper's size is `TextConfig()` with `DecoderConfig()`: eight layers and six."""
SOURCES = ("tatoeba", "restaurant", "customer-chat")
MOST_WORDS = 8
PIECES = 2000
PEAK_RATE = 2e-3
DROPOUT = 0.1
SMOOTHING = 0.1
ROOM_PIECES = 1500
STEPS, HELD_OUT = 900, 150
TRAINED = (3, None)
"""k; None trains with all of the source."""
WRITTEN = (1, 3, 5, None)


@dataclass(frozen=True)
class Sentence:
    english: str
    german: str


@dataclass(frozen=True)
class Written:
    """A translation, and for each of its words how many words had been read."""

    text: str
    delays_words: Sequence[int]


def read_sentences(text: Path, count: int) -> tuple[list[Sentence], list[Sentence]]:
    """Sentences of at most eight words to learn, and `count` that are held out."""
    learned, kept = list[Sentence](), list[Sentence]()
    for pair in read_pairs(text):
        german = pair.translations.get("de", "")
        if german and pair.source in SOURCES and len(pair.english.split()) <= MOST_WORDS:
            (learned if pair.split == "train" else kept).append(Sentence(pair.english, german))
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
    examples: Sequence[tuple[Sequence[int], Sequence[int]]],
    mask: SightMask | None,
    step_count: int,
    peak_rate: float = PEAK_RATE,
    seed: int = 1,
) -> tuple[SpeechTranslationModel, list[float]]:
    """Cross-entropy, each target word with the source that `mask` shows it.

    Args:
        examples: pieces of the source, its end included, and of the translation, without.

    Returns:
        The network, and the loss of each step.
    """
    torch.manual_seed(seed)
    network = SpeechTranslationModel(config, dropout=DROPOUT).train()
    optim = optimiser(network.parameters(), peak_rate)
    sizes = [max(len(source), len(target)) for source, target in examples]
    course: list[float] = []
    for part in islice(batches(sizes, ROOM_PIECES, np.random.default_rng(seed)), step_count):
        loss = _loss(network, [examples[i] for i in part], mask)
        optim.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optim.param_groups:
            group["lr"] = peak_rate * rate(len(course), len(course) / step_count)
        optim.step()
        course.append(float(loss.detach()))
    return network.eval(), course


def _loss(
    network: SpeechTranslationModel,
    examples: Sequence[tuple[Sequence[int], Sequence[int]]],
    mask: SightMask | None,
) -> torch.Tensor:
    sources = [torch.tensor(source)[:, None] for source, _ in examples]
    padded = nn.utils.rnn.pad_sequence(sources, batch_first=True)
    texts = [torch.tensor([EOS, *target, EOS]) for _, target in examples]
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=-1)
    with torch.autocast("cpu", torch.bfloat16):
        lengths = torch.tensor([len(source) for source in sources])
        logits, _ = network(padded, lengths, tokens[:, :-1].clamp(min=0), mask)
    return functional.cross_entropy(
        logits.flatten(0, 1),
        tokens[:, 1:].flatten(),
        ignore_index=-1,
        label_smoothing=SMOOTHING,
    )


class Writer:
    """Writes one sentence as the services do: a word comes, the policy says how much to commit."""

    def __init__(
        self, network: SpeechTranslationModel, source: Vocabulary, target: Vocabulary
    ) -> None:
        self._encoder, self._decoder = network.encoder, network.transformer_decoder
        self._source, self._target = source, target

    def write(self, english: str, k: int | None) -> Written:
        """Translate with wait-k, or with all of the source where k is None."""
        words = english.split()
        steps = [self._read(words[:count], len(words)) for count in range(1, len(words) + 1)]
        written = write(self._decoder, self._target, steps, k)
        text = self._target.decode(token.token_id for token, _ in written)
        return Written(text, [step + 1 for token, step in written if token.starts_word])

    def _read(self, words: Sequence[str], whole: int) -> Step:
        pieces, _ = source_pieces(words, self._source, ended=len(words) == whole)
        states = self._encoder.encode(torch.tensor(pieces)[:, None]).states
        return Step(Heard(0.0, len(pieces), len(words)), states)


def run(options: argparse.Namespace) -> None:
    """Train both, write what is held out with every k, and leave checkpoints and texts."""
    learned, held_out = read_sentences(options.data / "text", HELD_OUT)
    report(f"{len(learned)} sentences, {len(held_out)} held out")
    shown = SystemReport("han", "Han 2020, text", learned, ("held out", held_out))
    unchanged = score([each.english for each in held_out], held_out)
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
        mask = trained and WaitKMask(trained, source, target, reads_words=True)
        network, course = train(config, examples, mask or None, STEPS)
        name = _told(trained)
        ends = fmean(course[:20]), fmean(course[-20:])
        report(f"trained with {name}: loss {ends[0]:.2f} to {ends[1]:.2f}")
        writer = Writer(network, source, target)
        for k in WRITTEN:
            written = [writer.write(each.english, k) for each in held_out]
            scores = _scores(written, held_out)
            shown.row("held out", scores, trained=name, written=_told(k))
            bleu[trained, k] = bleu_draws([each.text for each in written], held_out)
        save_checkpoint(
            options.work / f"han-{trained or 'all'}",
            config,
            network.state_dict(),
            normalisation=FeatureNormalisation.identity(),
            source_model=models[0],
            target_model=models[1],
        )
    for k in WRITTEN:
        compared = f"trained with k 3 less all of the source, written with {_told(k)}"
        shown.difference(compared, bleu[TRAINED[0], k] - bleu[TRAINED[1], k])
    shown.save(options.work)


def _told(k: int | None) -> str:
    return f"k {k}" if k else "all of the source"


def _write_texts(work: Path, sentences: Sequence[Sentence]) -> None:
    """What `earvoice evaluate --text` reads."""
    work.mkdir(parents=True, exist_ok=True)
    for tag, texts in (
        ("en", [each.english for each in sentences]),
        ("de", [each.german for each in sentences]),
    ):
        (work / f"held-out.{tag}").write_text("\n".join(texts) + "\n", encoding="utf8")


def _scores(written: Sequence[Written], sentences: Sequence[Sentence]) -> Scores:
    """Quality, and lag in words of those that are not empty."""
    lags = [
        length_adaptive_average_lagging(
            each.delays_words, len(sentence.english.split()), len(sentence.german.split())
        )
        if each.delays_words
        else None
        for each, sentence in zip(written, sentences, strict=True)
    ]
    return score([each.text for each in written], sentences, lags, "words")
