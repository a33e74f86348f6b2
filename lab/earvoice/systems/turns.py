"""Short spoken turns of restaurant dialogues, which a system learns in minutes; and its scores."""

from __future__ import annotations

import csv
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from math import nan
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
from earvoice.evaluation.quality import word_error_rate
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.frontend import FeatureNormalisation, Filterbank, feature_stream
from earvoice.systems.rows import Difference, Row, write_rows
from earvoice.training.schedule import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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
    sound: Sound = field(default_factory=lambda: np.zeros(0, np.float32))
    """[n] float32 at 16 kHz, by espeak-ng; empty if the source is text."""

    @property
    def duration_ms(self) -> float:
        return len(self.sound) * 1000 / SAMPLE_RATE_HZ

    @property
    def recording(self) -> Sound:
        """The sound with silence before and after, as from a microphone."""
        return np.pad(self.sound, SILENCE_MS * SAMPLE_RATE_HZ // 1000)


def read_turns(
    text: Path, split: Literal["train", "dev"], count: int, most_words: int = MOST_WORDS
) -> list[Turn]:
    """Turns of few words, all different; none of dev is in train.

    Args:
        text: the folder of the texts.
        count: how many, in a fixed random order.
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
    """Each turn's features, [T, 80], and the mean and deviation of all that normalise them."""
    raw = [features_of(turn, FeatureNormalisation.identity()) for turn in turns]
    every = torch.cat(raw)
    normalisation = FeatureNormalisation(every.mean(0), every.std(0))
    return normalisation, [normalisation(each) for each in raw]


def features_of(turn: Turn, normalisation: FeatureNormalisation) -> torch.Tensor:
    return feature_stream(Filterbank(), normalisation)(turn.sound)


def _pairs(text: Path, split: str, most_words: int) -> Iterator[tuple[str, str]]:
    with (text / FILE.format(split=split)).open(encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            english, german = tidy(row[2]), tidy(row[3])
            if fits(english, german) and len(english.split()) <= most_words:
                yield english, german


class SystemReport:
    """Prints a system's results, and keeps them for the results page.

    The trivial baseline always writes the commonest training sentence.
    """

    def __init__(
        self,
        system: str,
        paper: str,
        trained: Sequence[Turn],
        test_sets: Mapping[str, Sequence[Turn]],
    ) -> None:
        self._system, self._paper = system, paper
        self._test_sets = test_sets
        self._rows: list[Row] = []
        self._differences: list[Difference] = []
        commonest = Counter(each.german for each in trained).most_common(1)[0][0]
        self._baselines = dict.fromkeys(test_sets, nan)
        for name, sentences in test_sets.items():
            row, told, _ = self._score(name, [commonest] * len(sentences))
            report(f"trivial baseline, always {commonest!r}, {name}: {told}")
            self._baselines[name] = row.bleu

    def row(
        self,
        test_set: str,
        texts: Sequence[str],
        lags: Sequence[float | None] = (),
        *,
        trained: str = "",
        written: str = "",
        lag_unit: Literal["ms", "words"] = "ms",
    ) -> np.ndarray:
        """Add the texts written for a test set, with the training and the parameters used.

        Args:
            lags: LAAL of each text; None for an empty one.

        Returns:
            BLEU of every draw, [R + 1], as by `Bootstrap.bleu`: all results use the same draws of
            sentences.
        """
        row, told, draws = self._score(test_set, texts)
        known = [lag for lag in lags if lag is not None]
        if known:
            row = replace(row, laal=fmean(known))
            decimals = 1 if lag_unit == "words" else 0
            told += f"; LAAL {row.laal:.{decimals}f} {lag_unit} of {len(known)} not empty"
        report(f"  {', '.join(filter(None, (test_set, written)))}: {told}")
        self._rows.append(replace(row, trained=trained, written_with=written, laal_unit=lag_unit))
        return draws

    def spoken_row(
        self,
        test_set: str,
        turns: Sequence[Turn],
        pieces: Sequence[Sequence[tuple[int, float]]],
        vocabulary: Vocabulary,
        *,
        trained: str = "",
        written: str = "",
    ) -> np.ndarray:
        """Like `row`, from the pieces written for each turn and their times in ms of audio."""
        lags_ms = [
            _lag_ms(each, vocabulary, turn) for each, turn in zip(pieces, turns, strict=True)
        ]
        texts = [vocabulary.decode(piece for piece, _ in each) for each in pieces]
        return self.row(test_set, texts, lags_ms, trained=trained, written=written)

    def _score(self, test_set: str, texts: Sequence[str]) -> tuple[Row, str, np.ndarray]:
        references = [each.german for each in self._test_sets[test_set]]
        draws = Bootstrap(len(texts)).bleu(sentence_statistics(texts, references, "de"))
        bleu = estimate(draws)
        wer = 100 * word_error_rate(texts, references, "de")
        exact = sum(text == wanted for text, wanted in zip(texts, references, strict=True))
        told = (
            f"BLEU {bleu.value:.1f} [{bleu.low:.1f}, {bleu.high:.1f}], WER {wer:.1f}, "
            f"{exact} of {len(texts)} exact"
        )
        row = Row(
            self._system,
            self._paper,
            test_set,
            len(texts),
            bleu.value,
            bleu.low,
            bleu.high,
            wer,
            self._baselines[test_set],
        )
        return row, told, draws

    def difference(
        self, compared: str, draws: np.ndarray, unit: Literal["BLEU", "WER"] = "BLEU"
    ) -> None:
        """Add a paired difference, given in every draw, [R + 1]."""
        found = estimate(draws)
        report(f"{compared}: {unit} {found.value:+.1f}, 95 % {found.low:+.1f} to {found.high:+.1f}")
        self._differences.append(
            Difference(self._system, compared, found.value, found.low, found.high, unit)
        )

    def save(self, work: Path) -> None:
        write_rows(work, self._system, self._rows, self._differences)


def _lag_ms(
    written: Sequence[tuple[int, float]], vocabulary: Vocabulary, turn: Turn
) -> float | None:
    """LAAL over words, each timed by its last piece; None if nothing is written."""
    ends_ms = [
        time_ms
        for (_, time_ms), following in zip_longest(written, written[1:])
        if following is None or vocabulary.starts_word(following[0])
    ]
    return spoken_lag_ms(ends_ms, turn)


def spoken_lag_ms(ends_ms: Sequence[float], turn: Turn) -> float | None:
    """LAAL of words, from the time of each in ms of audio; None if there are none."""
    if not ends_ms:
        return None
    times_ms = [min(max(0.0, end_ms), turn.duration_ms) for end_ms in ends_ms]
    return length_adaptive_average_lagging(times_ms, turn.duration_ms, len(turn.german.split()))
