"""Every point of every line is scored on the same resampled test sets."""

from __future__ import annotations

import numpy as np

from earvoice.evaluation.bleu import sentence_statistics
from earvoice.evaluation.clock import Clock
from earvoice.evaluation.corpus_score import score_instance
from earvoice.evaluation.curve.point import CurvePoint
from earvoice.evaluation.resampling import RESAMPLES, Floats, Resampling


class Resampler:
    """Scores of points on drawn test sets; draw 0 is the test set itself.

    Args:
        instance_count: size of the test set, above 0.
        resamples: how many are drawn.

    Attributes:
        resamples: the same.
    """

    def __init__(self, instance_count: int, resamples: int = RESAMPLES) -> None:
        self.resamples = resamples
        self._resampling = Resampling(instance_count, resamples)
        self._bleu: dict[str, Floats] = {}

    def bleu(self, point: CurvePoint) -> Floats:
        """Return BLEU, [resamples + 1], 0 to 100; nan without references."""
        path = point.report.path
        if path not in self._bleu:
            self._bleu[path] = self._resample_bleu(point)
        return self._bleu[path]

    def latency(self, point: CurvePoint, metric: str, clock: Clock) -> Floats:
        """Return the corpus score, [resamples + 1]; nan where a draw has none."""
        scores = [score_instance(instance, metric, clock) for instance in point.instances]
        values = [np.nan if score is None else score for score in scores]
        return self._resampling.mean(np.array(values, np.float64))

    def _resample_bleu(self, point: CurvePoint) -> Floats:
        # What has no reference adds nothing to a corpus; without any, there is no BLEU.
        known = np.array([instance.reference is not None for instance in point.instances])
        statistics = sentence_statistics(
            [instance.prediction for instance in point.instances],
            [instance.reference or "" for instance in point.instances],
            point.language,
        )
        if not known.any():
            return np.full_like(self._resampling.bleu(statistics), np.nan)
        return self._resampling.bleu(statistics * known[:, np.newaxis])
