"""Short turns of restaurant dialogues, spoken: what a system learns in minutes; and its scores."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from itertools import islice, zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from earvoice.corpus.clips import say
from earvoice.corpus.spoken import spoken_form
from earvoice.corpus.texts import comparison_key, fits, tidy
from earvoice.corpus.voice import Voice
from earvoice.evaluation.bootstrap import Bootstrap, estimate, sentence_statistics
from earvoice.evaluation.metrics import length_adaptive_average_lagging
from earvoice.evaluation.quality import score_quality
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.frontend import FeatureNormalisation, FeatureStream, Filterbank

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from earvoice.corpus.sound import Sound
    from earvoice.models.vocabulary import Vocabulary

MOST_WORDS = 6
VOICES = ("en-us+m1", "en-us+m3", "en-us+f2", "en-gb+f4")
SILENCE_MS = 500
FILE = "restaurant.{split}.dialogue-turn-en-de.tsv"


@dataclass(frozen=True)
class Turn:
    english: str
    german: str
    sound: Sound
    """[n] float32 at 16 kHz, of espeak-ng."""

    @property
    def duration_ms(self) -> float:
        return len(self.sound) * 1000 / SAMPLE_RATE_HZ

    @property
    def recording(self) -> Sound:
        """With silence before and behind, as a microphone gives it."""
        return np.pad(self.sound, SILENCE_MS * SAMPLE_RATE_HZ // 1000)


def read_turns(
    text: Path, split: Literal["train", "dev"], count: int, most_words: int = MOST_WORDS
) -> list[Turn]:
    """Turns of few words, no two alike; none of dev is in train.

    Args:
        text: the folder of the texts.
        count: so many, in an order drawn once for all.
    """
    known = {comparison_key(english) for english, _ in _pairs(text, "train", most_words)}
    pairs: dict[str, tuple[str, str]] = {}
    for english, german in _pairs(text, split, most_words):
        key = comparison_key(english)
        if split == "train" or key not in known:
            pairs.setdefault(key, (english, german))
    generator = random.Random(1)
    drawn = generator.sample(sorted(pairs), len(pairs))
    turns = []
    for english, german in islice((pairs[key] for key in drawn), count):
        voice = Voice("espeak-ng", generator.choice(VOICES), pitch=50)
        turns.append(Turn(english, german, say(voice, spoken_form(english))))
    return turns


def normalised_features(turns: Sequence[Turn]) -> tuple[FeatureNormalisation, list[torch.Tensor]]:
    """[T, 80] of each, and the mean and deviation of all, by which they are normalised."""
    raw = [features_of(turn, FeatureNormalisation.identity()) for turn in turns]
    every = torch.cat(raw)
    normalisation = FeatureNormalisation(every.mean(0), every.std(0))
    return normalisation, [normalisation(each) for each in raw]


def features_of(turn: Turn, normalisation: FeatureNormalisation) -> torch.Tensor:
    return FeatureStream(Filterbank(), normalisation).accept(turn.sound)


def _pairs(text: Path, split: str, most_words: int) -> Iterator[tuple[str, str]]:
    with (text / FILE.format(split=split)).open(encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            english, german = tidy(row[2]), tidy(row[3])
            if fits(english, german) and len(english.split()) <= most_words:
                yield english, german


def quality(texts: Sequence[str], turns: Sequence[Turn]) -> str:
    """BLEU with its 95 % interval, word error rate, and how many are as the reference."""
    references = [turn.german for turn in turns]
    bleu = estimate(bleu_draws(texts, turns))
    wer = score_quality(texts, references, "de").wer
    exact = sum(text == wanted for text, wanted in zip(texts, references, strict=True))
    return (
        f"BLEU {bleu.value:.1f} [{bleu.low:.1f}, {bleu.high:.1f}], WER {wer:.1f}, "
        f"{exact} of {len(texts)} exact"
    )


def bleu_draws(texts: Sequence[str], turns: Sequence[Turn]) -> np.ndarray:
    """As `Bootstrap.bleu`: the same turns are drawn for whatever is compared."""
    statistics = sentence_statistics(texts, [turn.german for turn in turns], "de")
    return Bootstrap(len(texts)).bleu(statistics)


def lag_ms(
    written: Sequence[tuple[int, float]], vocabulary: Vocabulary, turn: Turn
) -> float | None:
    """LAAL over words, each there with its last piece; None where nothing is written.

    Args:
        written: each piece, and when, in ms of audio.
    """
    ends = [
        min(turn.duration_ms, time_ms)
        for (_, time_ms), following in zip_longest(written, written[1:])
        if following is None or vocabulary.starts_word(following[0])
    ]
    if not ends:
        return None
    return length_adaptive_average_lagging(ends, turn.duration_ms, len(turn.german.split()))


def mean_lag(lags_ms: Sequence[float | None]) -> str:
    known = [lag for lag in lags_ms if lag is not None]
    return f"LAAL {fmean(known or [0.0]):.0f} ms of {len(known)} not empty"
