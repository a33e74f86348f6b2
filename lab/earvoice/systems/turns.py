"""Short turns of restaurant dialogues, spoken: what a system learns in minutes; and its scores."""

from __future__ import annotations

import csv
import random
from collections import Counter
from dataclasses import dataclass
from itertools import islice, zip_longest
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import torch

from earvoice.corpus.clips import say
from earvoice.corpus.spoken import spoken_form
from earvoice.corpus.texts import comparison_key, fits, tidy
from earvoice.corpus.voice import Voice
from earvoice.evaluation.bootstrap import Bootstrap, Estimate, estimate, sentence_statistics
from earvoice.evaluation.metrics import length_adaptive_average_lagging
from earvoice.evaluation.quality import word_error_rate
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.frontend import FeatureNormalisation, FeatureStream, Filterbank
from earvoice.systems.rows import Difference, Row, write_rows
from earvoice.training.schedule import report

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


class Translated(Protocol):
    """A turn or a sentence with its reference."""

    @property
    def german(self) -> str: ...


@dataclass(frozen=True)
class Scores:
    """How good what was written is, and how late.

    Attributes:
        lags: LAAL of each that is not empty.
    """

    bleu: Estimate
    wer: float
    exact: int
    count: int
    lags: Sequence[float]
    lag_unit: Literal["ms", "words"]

    @property
    def laal(self) -> float:
        return fmean(self.lags) if self.lags else nan

    def __str__(self) -> str:
        bleu = self.bleu
        text = (
            f"BLEU {bleu.value:.1f} [{bleu.low:.1f}, {bleu.high:.1f}], WER {self.wer:.1f}, "
            f"{self.exact} of {self.count} exact"
        )
        if not self.lags:
            return text
        decimals = 1 if self.lag_unit == "words" else 0
        lag = f"{self.laal:.{decimals}f} {self.lag_unit}"
        return f"{text}; LAAL {lag} of {len(self.lags)} not empty"


def score(
    texts: Sequence[str],
    translated: Sequence[Translated],
    lags: Sequence[float | None] = (),
    lag_unit: Literal["ms", "words"] = "ms",
) -> Scores:
    """Score texts; a lag of None is that of an empty one."""
    references = [each.german for each in translated]
    return Scores(
        estimate(bleu_draws(texts, translated)),
        100 * word_error_rate(texts, references, "de"),
        sum(text == wanted for text, wanted in zip(texts, references, strict=True)),
        len(texts),
        [lag for lag in lags if lag is not None],
        lag_unit,
    )


def bleu_draws(texts: Sequence[str], translated: Sequence[Translated]) -> np.ndarray:
    """As `Bootstrap.bleu`: the same turns are drawn for whatever is compared."""
    statistics = sentence_statistics(texts, [each.german for each in translated], "de")
    return Bootstrap(len(texts)).bleu(statistics)


class SystemReport:
    """Prints what a system has shown, and keeps it for the results page.

    The trivial baseline writes the commonest training sentence every time.
    """

    def __init__(
        self,
        system: str,
        paper: str,
        trained: Sequence[Translated],
        *test_sets: tuple[str, Sequence[Translated]],
    ) -> None:
        self._system, self._paper = system, paper
        self._rows: list[Row] = []
        self._differences: list[Difference] = []
        commonest = Counter(each.german for each in trained).most_common(1)[0][0]
        self._baselines: dict[str, float] = {}
        for name, translated in test_sets:
            scores = score([commonest] * len(translated), translated)
            report(f"trivial baseline, always {commonest!r}, {name}: {scores}")
            self._baselines[name] = scores.bleu.value

    def row(self, test_set: str, scores: Scores, *, trained: str = "", written: str = "") -> None:
        """Take how a test set was written, by which training and with what."""
        report(f"  {', '.join(filter(None, (test_set, written)))}: {scores}")
        self._rows.append(
            Row(
                self._system,
                self._paper,
                trained,
                written,
                test_set,
                scores.count,
                scores.bleu.value,
                scores.bleu.low,
                scores.bleu.high,
                scores.wer,
                scores.laal,
                scores.lag_unit,
                self._baselines[test_set],
            )
        )

    def difference(
        self, compared: str, draws: np.ndarray, unit: Literal["BLEU", "WER"] = "BLEU"
    ) -> None:
        """Take a paired difference in every draw, [R + 1]."""
        found = estimate(draws)
        report(f"{compared}: {unit} {found.value:+.1f}, 95 % {found.low:+.1f} to {found.high:+.1f}")
        self._differences.append(
            Difference(self._system, compared, found.value, found.low, found.high, unit)
        )

    def save(self, work: Path) -> None:
        write_rows(work, self._system, self._rows, self._differences)


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
