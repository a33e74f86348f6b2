"""BLEU from what each sentence adds to it, so that a resampled corpus costs one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from earvoice.evaluation.quality import bleu_tokenizer

Floats = NDArray[np.float64]

_ORDERS = 4


def sentence_statistics(
    hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> Floats:
    """Return what each sentence adds to its corpus' BLEU, counted by sacreBLEU.

    Returns:
        [N, 10]: length of hypothesis and reference, matching n-grams of orders 1 to 4, and
        n-grams of the hypothesis of orders 1 to 4.
    """
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = bleu.sentence_score(hypothesis, [reference])
        rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(rows, dtype=np.float64)


def corpus_bleu(statistics: Floats) -> Floats:
    """Return BLEU, 0 to 100, of each row of summed statistics.

    As sacreBLEU computes it: orders without a match are smoothed exponentially, those without an
    n-gram end the geometric mean at 0.

    Args:
        statistics: [..., 10], sums of rows of ``sentence_statistics``.
    """
    lengths, references = statistics[..., 0], statistics[..., 1]
    matches, totals = statistics[..., 2 : 2 + _ORDERS], statistics[..., 2 + _ORDERS :]
    # The first order without a match counts as a half, the next as a quarter, and so on.
    halvings = np.cumsum(matches == 0, axis=-1)
    smoothed = np.where(matches == 0, 0.5**halvings, matches)
    possible = (totals > 0).all(-1) & (matches > 0).any(-1)
    # Where BLEU is 0 anyway, nothing may be divided by 0.
    logs = np.log(smoothed / np.maximum(totals, 1.0)).mean(-1)
    penalty = np.minimum(0.0, 1.0 - references / np.maximum(lengths, 1.0))
    return np.where(possible, 100.0 * np.exp(logs + penalty), 0.0)
