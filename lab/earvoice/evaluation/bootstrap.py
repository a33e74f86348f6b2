"""Paired bootstrap: everything that is compared uses the same draws of instances.

BLEU is computed from each sentence's statistics, so that a drawn corpus costs a matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.quality import bleu_metric

Floats = NDArray[np.float64]

SEED = 2023
RESAMPLES = 2000
CONFIDENCE = 0.95

_ORDERS = 4


def sentence_statistics(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> Floats:
    """Return each sentence's statistics for corpus BLEU, counted by sacreBLEU.

    Returns:
        [N, 10]: length of hypothesis and reference, matching n-grams of orders 1 to 4, and
        n-grams of the hypothesis of orders 1 to 4.

    Raises:
        CommandError: see `bleu_metric`.
    """
    bleu = bleu_metric(language, effective_order=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = bleu.sentence_score(hypothesis, [reference])
        rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(rows, dtype=np.float64)


def corpus_bleu(statistics: Floats) -> Floats:
    """Return BLEU, 0 to 100, of each row of summed statistics [..., 10].

    As sacreBLEU computes it: orders without a match are smoothed exponentially; an order without
    any n-gram makes the geometric mean 0.
    """
    lengths, references = statistics[..., 0], statistics[..., 1]
    matches, totals = statistics[..., 2 : 2 + _ORDERS], statistics[..., 2 + _ORDERS :]
    # The first order without a match counts as a half, the next as a quarter, and so on.
    halvings = np.cumsum(matches == 0, axis=-1)
    smoothed = np.where(matches == 0, 0.5**halvings, matches)
    possible = (totals > 0).all(-1) & (matches > 0).any(-1)
    # Avoids a division by 0 where BLEU is 0 anyway.
    logs = np.log(smoothed / np.maximum(totals, 1.0)).mean(-1)
    penalty = np.minimum(0.0, 1.0 - references / np.maximum(lengths, 1.0))
    return np.where(possible, 100.0 * np.exp(logs + penalty), 0.0)


@dataclass(frozen=True)
class Estimate:
    """A number on the test set itself, with its 95 % interval; nan if it has no interval."""

    value: float
    low: float
    high: float


class Bootstrap:
    """Draws of N instances with replacement (Koehn 2004).

    Draw 0 is the test set itself, so row 0 of every result is the plain result.
    """

    def __init__(self, instance_count: int, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self.resamples = resamples
        drawn = np.random.default_rng(seed).multinomial(
            instance_count, np.full(instance_count, 1 / instance_count), size=resamples
        )
        # [R + 1, N]: how often each instance is in each draw.
        self._weights: Floats = np.vstack([np.ones(instance_count), drawn]).astype(np.float64)

    def bleu(self, statistics: Floats) -> Floats:
        """Return corpus BLEU of each draw, [R + 1], from ``sentence_statistics`` [N, 10].

        Instances without a reference have rows of nan and add nothing; nan if none has one.
        """
        known = ~np.isnan(statistics[:, 0])
        if not known.any():
            return np.full(len(self._weights), np.nan)
        return corpus_bleu(self._weights[:, known] @ statistics[known])

    def right_words(self, counts: Floats) -> Floats:
        """Return 100 - WER of each draw, [R + 1], from word errors and reference words [N, 2].

        Rows of nan add nothing; nan if there is no reference at all.
        """
        known = ~np.isnan(counts[:, 0])
        errors, words = np.where(known[:, None], counts, 0.0).T
        return 100.0 - 100.0 * self.ratio(errors, words)

    def mean(self, values: Floats) -> Floats:
        """Return the mean over the instances of each draw, [R + 1]; nan values are left out."""
        return self.ratio(np.where(np.isnan(values), 0.0, values), ~np.isnan(values))

    def ratio(self, parts: Floats, wholes: Floats | NDArray[np.bool_]) -> Floats:
        """Return the sum of parts over the sum of wholes of each draw, [R + 1]."""
        with np.errstate(invalid="ignore"):
            ratios: Floats = (self._weights @ parts) / (self._weights @ wholes.astype(np.float64))
        return ratios


def estimate(draws: Floats) -> Estimate:
    """Return the plain result (row 0) with the interval of the other rows."""
    low, high = band(draws[1:]) or (float("nan"), float("nan"))
    return Estimate(float(draws[0]), low, high)


def band(values: Floats) -> tuple[float, float] | None:
    """Return the bounds of the middle ``CONFIDENCE`` of values; None if most are unknown."""
    known = values[~np.isnan(values)]
    if 2 * len(known) <= len(values):
        return None
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)
