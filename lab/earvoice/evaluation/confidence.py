"""How sure a model may be of its words: fitted on a run whose words are right or wrong.

A word's confidence is the logistic function of a line through the logit of its probability (Platt
1999): of the words with 0.8, eight in ten are right. An utterance is understood from the mean
confidence on that lets the most right words out, less the wrong ones, and nearly all that has more
right than wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from earvoice.evaluation.instance import default_unit, split_text
from earvoice.evaluation.log import LogError, Record, read_records
from earvoice.evaluation.run_folder import LOG_NAME, SETTINGS_NAME, read_settings
from earvoice.evaluation.word_errors import plain_words, right_words
from earvoice.models.config import Confidence

LEAST_KEPT_SHARE = 0.99
"""So many of the utterances with more right words than wrong must be understood."""
BIN_COUNT = 10
NEAR = 0.05
"""A word counts as one of 0.8 from 0.75 to 0.85."""

_MOST_STEPS = 100
_STEP_LIMIT = 1e-9

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SpokenUtterance:
    """The words of an utterance that can be right or wrong.

    Attributes:
        delays_ms: when each was released.
    """

    confidences: tuple[float, ...]
    right: tuple[bool, ...]
    delays_ms: tuple[float, ...]

    @property
    def gain(self) -> int:
        """Right words less wrong ones."""
        return 2 * sum(self.right) - len(self.right)

    def most_mean(self, confidence: Confidence) -> float:
        """Return the highest mean confidence that its words had come to when some were released.

        Args:
            confidence: what the confidences have to be put right by.
        """
        sure: list[float] = corrected(np.array(self.confidences), confidence).tolist()
        sums = list(accumulate(sure))
        ends = accumulate(len(list(group)) for _, group in groupby(self.delays_ms))
        return max(sums[end - 1] / end for end in ends)


def read_run(folder: Path, source_language: str, model_hash: str) -> list[SpokenUtterance]:
    """Return the utterances of a run of ``earvoice evaluate`` that have words.

    Args:
        source_language: of the model, BCP-47.
        model_hash: the model's.

    Raises:
        LogError: it is no such run, it was made with another model, its words are no captions, or
            words were held back in it.
    """
    path = folder / SETTINGS_NAME
    try:
        session = Record(str(path), dict(read_settings(path))).record("session")
    except OSError as error:
        raise LogError(str(path), f"cannot be read: {error.strerror}") from error
    if session.text("model_hash") != model_hash:
        raise LogError(str(path), f"model_hash is {session.text('model_hash')}, not {model_hash}")
    options = session.record("options")
    (language,) = options.texts("target_languages")
    if language != source_language:
        raise LogError(
            str(path),
            f"the run wrote {language!r}: whether words are right is known of captions alone; "
            f"run with --to {source_language}",
        )
    if options.number("min_confidence"):
        raise LogError(str(path), "words were held back in the run: run with --min-confidence 0")
    records = read_records(folder / LOG_NAME)
    return [utterance for record in records for utterance in _utterances(record, language)]


def _utterances(record: Record, language: str) -> list[SpokenUtterance]:
    unit = default_unit(language)
    units = split_text(record.text("prediction"), unit)
    confidences, delays_ms = record.numbers("confidences"), record.numbers("delays")
    if not len(units) == len(confidences) == len(delays_ms):
        raise LogError(record.place, f"has {len(units)} words and {len(confidences)} confidences")
    words = [plain_words(text, unit) for text in units]
    flags = right_words(
        [word for parts in words for word in parts], plain_words(record.text("reference"), unit)
    )
    ends = accumulate(map(len, words))
    right = [all(flags[end - len(parts) : end]) for parts, end in zip(words, ends, strict=True)]
    utterances, first = [], 0
    for part in record.records("utterances"):
        last = first + part.integer("units")
        # What nobody hears, a lone dash say, is neither right nor wrong.
        places = [place for place in range(first, last) if words[place]]
        first = last
        if places:
            utterances.append(
                SpokenUtterance(
                    tuple(confidences[place] for place in places),
                    tuple(right[place] for place in places),
                    tuple(delays_ms[place] for place in places),
                )
            )
    return utterances


def calibrate(utterances: Sequence[SpokenUtterance]) -> Confidence:
    """Return what makes the confidences of a run true.

    Raises:
        LogError: the words are all right, or all wrong, or the sure ones are not right more often.
    """
    known = np.array([sure for one in utterances for sure in one.confidences])
    right = np.array([flag for one in utterances for flag in one.right], np.bool_)
    if not 0 < right.sum() < len(right):
        raise LogError("the run", f"{right.sum()} of {len(right)} words are right: some must be")
    scale, offset = fit_logistic(_logits(known), right)
    if scale <= 0:
        raise LogError("the run", "words with more confidence are not right more often")
    found = Confidence(scale, offset)
    least = least_understood(
        [one.most_mean(found) for one in utterances], [one.gain for one in utterances]
    )
    return Confidence(scale, offset, least)


def joined(before: Confidence, found: Confidence) -> Confidence:
    """Return as one the map that a run's confidences were made with and the one found on them."""
    offset = found.scale * before.offset + found.offset
    return Confidence(found.scale * before.scale, offset, found.least)


def fit_logistic(logits: Floats, right: Flags) -> tuple[float, float]:
    """Return scale and offset of the likeliest line, by Newton's method.

    Each side's targets are drawn in by one word, as Platt does, so that they exist even where the
    two are divided without an error.
    """
    hits, misses = int(right.sum()), int((~right).sum())
    targets = np.where(right, (hits + 1) / (hits + 2), 1 / (misses + 2))
    columns = np.stack([logits, np.ones_like(logits)], 1)
    line = np.array([1.0, 0.0])
    for _ in range(_MOST_STEPS):
        shares = _shares(columns @ line)
        slope = columns.T @ (shares - targets)
        bend = columns.T @ (columns * (shares * (1 - shares))[:, None])
        step = np.linalg.solve(bend + 1e-9 * np.eye(2), slope)
        # Newton's step may lead too far where the curve is flat: then a part of it.
        share = 1.0
        while _loss(columns @ (line - share * step), targets) > _loss(columns @ line, targets):
            share /= 2
            if share < _STEP_LIMIT:
                break
        line = line - share * step
        if np.abs(share * step).max() < _STEP_LIMIT:
            break
    return float(line[0]), float(line[1])


def least_understood(means: Sequence[float], gains: Sequence[int]) -> float:
    """Return the mean confidence from which on utterances are best released.

    Args:
        means: of each utterance, the highest mean confidence that it comes to.
        gains: its right words less its wrong ones.
    """
    order = np.argsort(means, kind="stable")
    sorted_means, sorted_gains = np.array(means)[order], np.array(gains)[order]
    # Held back are all before a place; what is lost there is their gain.
    lost = np.concatenate([[0], np.cumsum(sorted_gains)])
    good = np.concatenate([[0], np.cumsum(sorted_gains > 0)])
    allowed = good <= (1 - LEAST_KEPT_SHARE) * good[-1]
    place = int(np.argmin(np.where(allowed, lost, np.inf)))
    if place == 0:
        return 0.0
    if place == len(means):
        return float(min(1.0, np.nextafter(sorted_means[-1], 2)))
    return float((sorted_means[place - 1] + sorted_means[place]) / 2)


def corrected(confidences: Floats, confidence: Confidence) -> Floats:
    """Return confidences put right by a further map."""
    return _shares(confidence.scale * _logits(confidences) + confidence.offset)


def share_right(confidences: Floats, right: Flags, confidence: float) -> tuple[int, float | None]:
    """Return how many words have about a confidence, and the share of them that is right."""
    near = np.abs(confidences - confidence) <= NEAR
    count = int(near.sum())
    return count, float(right[near].mean()) if count else None


def reliability_table(utterances: Sequence[SpokenUtterance], confidence: Confidence) -> str:
    """Return lines for people: what confidences are worth, and what would be held back.

    Args:
        confidence: what the confidences have to be put right by, and what is understood.
    """
    known = np.array([sure for one in utterances for sure in one.confidences])
    right = np.array([flag for one in utterances for flag in one.right], np.bool_)
    sure = corrected(known, confidence)
    lines = [f"{'confidence':14}{'words':>8}{'mean':>8}{'right':>8}"]
    bins = np.minimum((sure * BIN_COUNT).astype(int), BIN_COUNT - 1)
    for number in range(BIN_COUNT):
        here = bins == number
        if here.any():
            low, high = number / BIN_COUNT, (number + 1) / BIN_COUNT
            means = f"{sure[here].mean():8.3f}{right[here].mean():8.3f}"
            lines.append(f"{f'{low:.1f} to {high:.1f}':14}{here.sum():8}{means}")
    lines.append(f"{'all':14}{len(sure):8}{sure.mean():8.3f}{right.mean():8.3f}")
    count, share = share_right(sure, right, 0.8)
    if share is not None:
        lines.append(f"of {count} words with 0.75 to 0.85, the share right is {share:.3f}")
    held = [one for one in utterances if one.most_mean(confidence) < confidence.least]
    good = sum(one.gain > 0 for one in utterances)
    good_held = sum(one.gain > 0 for one in held)
    lines.append(
        f"understood from a mean confidence of {confidence.least:.3f} on: held back are "
        f"{good_held} of {good} utterances with more right words than wrong, and "
        f"{len(held) - good_held} of the other {len(utterances) - good}"
    )
    return "\n".join(lines) + "\n"


def _logits(shares: Floats) -> Floats:
    # A float on the wire is as good as certain this near to 0 and 1.
    clear = np.clip(shares, 1e-7, 1 - 1e-7)
    return np.log(clear) - np.log1p(-clear)


def _shares(logits: Floats) -> Floats:
    return (1 + np.tanh(logits / 2)) / 2


def _loss(logits: Floats, targets: Floats) -> float:
    return float((np.logaddexp(0, logits) - targets * logits).sum())
