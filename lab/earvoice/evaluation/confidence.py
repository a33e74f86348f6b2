"""Calibrates a model's word confidences on a run whose words are known to be right or wrong.

A word's confidence is a function of its probability p by beta calibration (Kull 2017), the logistic
function of a ln(p) - b ln(1 - p) + c: of the words with 0.8, eight in ten are right. The mean
confidence above which an utterance counts as understood is chosen to release the most right words
minus wrong ones, and nearly all utterances that have more right words than wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from earvoice.evaluation.instance import Unit, default_unit, split_text
from earvoice.evaluation.log import LogError, Record, read_records
from earvoice.evaluation.quality import plain_words, right_words
from earvoice.evaluation.run_folder import LOG_NAME, SETTINGS_NAME, read_settings
from earvoice.models.config import Confidence, ModelConfig

LEAST_KEPT_SHARE = 0.98
"""Share of the utterances with more right words than wrong that must be understood."""
BIN_COUNT = 10
NEAR = 0.05
"""Half the width of a reliability bin: words from 0.75 to 0.85 count as 0.8."""

_MOST_STEPS = 100
_STEP_LIMIT = 1e-9

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SpokenUtterance:
    """The words of an utterance that can be right or wrong.

    Attributes:
        log_probabilities: natural logarithms.
        released_ms: when each was released, computation included, because sound that is decoded
            again after a cut yields several commits at one position in the sound.
    """

    log_probabilities: tuple[float, ...]
    right: tuple[bool, ...]
    released_ms: tuple[float, ...]

    @property
    def gain(self) -> int:
        """Right words minus wrong ones."""
        return 2 * sum(self.right) - len(self.right)

    def most_mean(self, confidence: Confidence) -> float:
        """Return the highest mean confidence of its words so far, over the times of release.

        A first word alone counts only if it is the only one.
        """
        sure: list[float] = confidences(np.array(self.log_probabilities), confidence).tolist()
        sums = list(accumulate(sure))
        ends = accumulate(len(list(group)) for _, group in groupby(self.released_ms))
        return max(sums[end - 1] / end for end in ends if end > 1 or len(sums) == 1)


def read_run(folder: Path, config: ModelConfig, model_hash: str) -> list[SpokenUtterance]:
    """Return the utterances of a run of ``earvoice evaluate`` that have words.

    Args:
        config: of the model that was served.
        model_hash: its hash.

    Raises:
        LogError: it is not such a run, was made with another model, has no captions, or words
            were held back in it.
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
    if language != config.source_language:
        raise LogError(
            str(path),
            f"the run wrote {language!r}: whether words are right is known of captions alone; "
            f"run with --to {config.source_language}",
        )
    if options.number("min_confidence"):
        raise LogError(str(path), "words were held back in the run: run with --min-confidence 0")
    records = read_records(folder / LOG_NAME)
    unit = default_unit(language)
    return [one for record in records for one in _utterances(record, unit, config.confidence)]


def _utterances(record: Record, unit: Unit, made_with: Confidence) -> list[SpokenUtterance]:
    units = split_text(record.text("prediction"), unit)
    sure, released_ms = record.numbers("confidences"), record.numbers("elapsed")
    if not len(units) == len(sure) == len(released_ms):
        raise LogError(record.place, f"has {len(units)} words and {len(sure)} confidences")
    logarithms = log_probabilities(np.array(sure), made_with).tolist()
    words = [plain_words(text, unit) for text in units]
    flags = right_words(
        [word for parts in words for word in parts], plain_words(record.text("reference"), unit)
    )
    ends = accumulate(map(len, words))
    right = [all(flags[end - len(parts) : end]) for parts, end in zip(words, ends, strict=True)]
    utterances, first = [], 0
    for part in record.records("utterances"):
        last = first + part.integer("units")
        # What has no sound, such as a lone dash, is neither right nor wrong.
        places = [place for place in range(first, last) if words[place]]
        first = last
        if places:
            utterances.append(
                SpokenUtterance(
                    tuple(logarithms[place] for place in places),
                    tuple(right[place] for place in places),
                    tuple(released_ms[place] for place in places),
                )
            )
    return utterances


def calibrate(utterances: Sequence[SpokenUtterance]) -> Confidence:
    """Return the parameters that make a model's confidences calibrated.

    Raises:
        LogError: the words are all right or all wrong, or likely ones are not right more often.
    """
    logarithms, right = _all_words(utterances)
    if not 0 < right.sum() < len(right):
        raise LogError("the run", f"{right.sum()} of {len(right)} words are right: some must be")
    found = fit(logarithms, right)
    least = least_understood(
        [one.most_mean(found) for one in utterances], [one.gain for one in utterances]
    )
    return replace(found, least=least)


def fit(logarithms: Floats, right: Flags) -> Confidence:
    """Return the maximum-likelihood map among those that never fall with the probability.

    The targets are smoothed by one word on each side, as in Platt (1999), so that a maximum exists
    even if right and wrong words are perfectly separable.

    Args:
        logarithms: of the words' probabilities.

    Raises:
        LogError: there is no such map, as likely words are not right more often.
    """
    hits, misses = int(right.sum()), int((~right).sum())
    targets = np.where(right, (hits + 1) / (hits + 2), 1 / (misses + 2))
    columns = _columns(logarithms)
    # A scale below 0 is dropped, and the others are fitted again without it.
    used = [True, True, True]
    while True:
        line = np.zeros(3)
        line[used] = _fit_logistic(columns[:, used], targets)
        if line.min(initial=0.0, where=[True, True, False]) >= 0:
            break
        used = [flag and value >= 0 for flag, value in zip(used[:2], line[:2], strict=True)] + [
            True
        ]
    if not any(used[:2]):
        raise LogError("the run", "words with more probability are not right more often")
    return Confidence(*line.tolist())


def _fit_logistic(columns: Floats, targets: Floats) -> Floats:
    """Return the maximum-likelihood weights of the columns, by Newton's method."""
    line = np.zeros(columns.shape[1])
    for _ in range(_MOST_STEPS):
        shares = _shares(columns @ line)
        slope = columns.T @ (shares - targets)
        bend = columns.T @ (columns * (shares * (1 - shares))[:, None])
        step = np.linalg.solve(bend + 1e-9 * np.eye(len(line)), slope)
        # Where the curve is flat, Newton's step may overshoot: shorten it then.
        share, loss = 1.0, _loss(columns @ line, targets)
        while share > _STEP_LIMIT and _loss(columns @ (line - share * step), targets) > loss:
            share /= 2
        line = line - share * step
        if np.abs(share * step).max() < _STEP_LIMIT:
            break
    return line


def least_understood(means: Sequence[float], gains: Sequence[int]) -> float:
    """Return the best threshold of mean confidence for releasing an utterance.

    Args:
        means: the highest mean confidence that each utterance reaches.
        gains: each utterance's right words minus its wrong ones.
    """
    order = np.argsort(means, kind="stable")
    sorted_means, sorted_gains = np.array(means)[order], np.array(gains)[order]
    # A threshold at a place holds back all utterances before it, and so loses their gains.
    lost = np.concatenate([[0], np.cumsum(sorted_gains)])
    good = np.concatenate([[0], np.cumsum(sorted_gains > 0)])
    allowed = good <= (1 - LEAST_KEPT_SHARE) * good[-1]
    # Of equally good places take the last: what is as often wrong as right is held back.
    places = np.flatnonzero(allowed & (lost == lost[allowed].min()))
    place = int(places[-1])
    if place == 0:
        return 0.0
    if place == len(means):
        return float(min(1.0, np.nextafter(sorted_means[-1], 2)))
    return float((sorted_means[place - 1] + sorted_means[place]) / 2)


def confidences(logarithms: Floats, confidence: Confidence) -> Floats:
    """Return the confidence of words whose probabilities have these logarithms."""
    line = [confidence.unsure_scale, confidence.sure_scale, confidence.offset]
    return _shares(_columns(logarithms) @ np.array(line))


def log_probabilities(told: Floats, made_with: Confidence) -> Floats:
    """Invert the calibration by bisection: log-probabilities from confidences."""
    # Nearer to 0 or 1 than this, a float on the wire is indistinguishable from certain.
    clear = np.clip(told, 1e-7, 1 - 1e-7)
    low, high = np.full_like(clear, -50.0), np.full_like(clear, 20.0)
    for _ in range(60):
        logits = (low + high) / 2
        below = confidences(-np.logaddexp(0, -logits), made_with) < clear
        low, high = np.where(below, logits, low), np.where(below, high, logits)
    found: Floats = -np.logaddexp(0, -(low + high) / 2)
    return found


def share_right(sure: Floats, right: Flags, confidence: float) -> tuple[int, float | None]:
    """Return how many words have roughly this confidence, and the share of them that is right."""
    near = np.abs(sure - confidence) <= NEAR
    count = int(near.sum())
    return count, float(right[near].mean()) if count else None


def reliability_table(utterances: Sequence[SpokenUtterance], confidence: Confidence) -> str:
    """Return readable lines: how reliable confidences are, and what would be held back."""
    logarithms, right = _all_words(utterances)
    sure = confidences(logarithms, confidence)
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


def _all_words(utterances: Sequence[SpokenUtterance]) -> tuple[Floats, Flags]:
    logarithms = [value for one in utterances for value in one.log_probabilities]
    right = [flag for one in utterances for flag in one.right]
    return np.array(logarithms), np.array(right, np.bool_)


def _columns(logarithms: Floats) -> Floats:
    # As in the policy service: both bounds are indistinguishable from certainty.
    clear = np.clip(logarithms, -50.0, -1e-9)
    return np.stack([clear, -np.log(-np.expm1(clear)), np.ones_like(clear)], 1)


def _shares(logits: Floats) -> Floats:
    return (1 + np.tanh(logits / 2)) / 2


def _loss(logits: Floats, targets: Floats) -> float:
    return float((np.logaddexp(0, logits) - targets * logits).sum())
