"""Quality over latency: scored logs are points, and the points of a policy are a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from earvoice.evaluation.bootstrap import Bootstrap, Floats, sentence_statistics
from earvoice.evaluation.instance import Clock, Instance
from earvoice.evaluation.log import LogError
from earvoice.evaluation.metrics import score_instance
from earvoice.evaluation.quality import word_error_counts
from earvoice.evaluation.run_folder import LOG_NAME
from earvoice.evaluation.score import Report, ScoringOptions, score_log

Measure = Literal["BLEU", "% right"]
"""Of quality: of captions it is the percentage of words that are right, 100 - WER."""

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class CurvePoint:
    """A scored log.

    Attributes:
        name: of its folder; ``POLICY:KEY=VALUE,...@KEY=VALUE,...`` where a sweep wrote it.
        language: of the target, BCP-47; empty if nobody knows.
    """

    name: str
    report: Report
    instances: tuple[Instance, ...]
    language: str

    @property
    def policy(self) -> str:
        """The policy's name; the whole name of a folder that no sweep wrote."""
        return re.split("[:@]", self.name, maxsplit=1)[0]

    @property
    def choices(self) -> Mapping[str, str]:
        assignments = re.split("[:@,]", self.name)[1:]
        return dict(part.split("=", 1) for part in assignments if "=" in part)

    @property
    def bleu(self) -> float | None:
        return None if self.report.quality is None else self.report.quality.bleu

    @property
    def core_seconds_per_hour(self) -> float | None:
        """Computation of the services for an hour of audio, in seconds of one core."""
        factor = self.report.score.real_time_factor
        return None if factor is None else factor * _SECONDS_PER_HOUR

    def latency(self, metric: str, clock: Clock) -> float | None:
        """Return a corpus score; None if the log does not know the clock."""
        mean = self.report.score.rows[metric].get(clock)
        return None if mean is None else mean.value

    def values(self, metric: str, clock: Clock) -> Floats:
        """Return each instance's score, [N]; nan where it has none."""
        scores = (score_instance(instance, metric, clock) for instance in self.instances)
        return np.array([np.nan if score is None else score for score in scores], np.float64)

    @cached_property
    def statistics(self) -> Floats:
        """What each instance adds to BLEU, [N, 10]; nan without a reference."""
        rows = sentence_statistics(
            [instance.prediction for instance in self.instances],
            [instance.reference or "" for instance in self.instances],
            self.language,
        )
        rows[[instance.reference is None for instance in self.instances]] = np.nan
        return rows

    @cached_property
    def word_errors(self) -> Floats:
        """Each instance's word errors and the words of its reference, [N, 2]; nan without one."""
        counts = word_error_counts(
            [instance.prediction for instance in self.instances],
            [instance.reference or "" for instance in self.instances],
            self.language,
        )
        rows = np.array(counts, np.float64)
        rows[[instance.reference is None for instance in self.instances]] = np.nan
        return rows

    def quality(self, bootstrap: Bootstrap, measure: Measure = "BLEU") -> Floats:
        """Return how good the translations of every draw are, [R + 1]."""
        if measure == "BLEU":
            return bootstrap.bleu(self.statistics)
        return bootstrap.right_words(self.word_errors)


CurveLine = tuple[str, tuple[CurvePoint, ...]]
"""A name, and what lies on it."""


def find_points(folder: Path) -> list[Path]:
    """Return the folders with a log in and below a folder, in order of their names."""
    found = sorted(log.parent for log in folder.rglob(LOG_NAME))
    if not found:
        raise LogError(str(folder), f"no {LOG_NAME} in it or below it")
    return found


def read_point(folder: Path, options: ScoringOptions) -> CurvePoint:
    scored = score_log(folder, options)
    return CurvePoint(folder.resolve().name, scored.report, scored.instances, scored.language)


def group_points(points: Sequence[CurvePoint], keys: Sequence[str]) -> list[CurveLine]:
    """Return a line for each policy, and for each choice of the keys given."""
    check_same_set(points)
    groups: dict[str, list[CurvePoint]] = {}
    for point in points:
        apart = [f"{key}={point.choices[key]}" for key in keys if key in point.choices]
        groups.setdefault(" ".join([point.policy, *apart]), []).append(point)
    return [(name, tuple(group)) for name, group in groups.items()]


def check_same_set(points: Sequence[CurvePoint]) -> None:
    first = points[0]
    references = [instance.reference for instance in first.instances]
    for point in points[1:]:
        if [instance.reference for instance in point.instances] != references:
            raise LogError(point.report.path, f"is not of the same test set as {first.report.path}")


def quality_at(
    points: Sequence[CurvePoint],
    latency_ms: float,
    metric: str,
    clock: Clock,
    bootstrap: Bootstrap,
    measure: Measure = "BLEU",
) -> Floats:
    """Return quality at a latency in every draw, [R + 1]; nan outside a line's points.

    Points without references or without the clock are left out.
    """
    known = [
        point
        for point in points
        if point.bleu is not None and point.latency(metric, clock) is not None
    ]
    if not known:
        return np.full(bootstrap.resamples + 1, np.nan)
    latencies_ms = np.stack([bootstrap.mean(point.values(metric, clock)) for point in known])
    quality = np.stack([point.quality(bootstrap, measure) for point in known])
    return interpolate(latencies_ms, quality, np.array([latency_ms]))[:, 0]


def interpolate(latencies_ms: Floats, values: Floats, wanted_ms: Floats) -> Floats:
    """Return values at latencies on the straight lines between points (Papi 2023, footnote 8).

    Args:
        latencies_ms: [P, D], in any order; nan leaves a point out of a draw.
        values: [P, D].
        wanted_ms: [L].

    Returns:
        [D, L]; nan outside a draw's points.
    """
    # By value where latencies are equal: the order of the points must not count.
    order = np.lexsort((values, latencies_ms), axis=0)
    latencies_ms = np.take_along_axis(latencies_ms, order, 0)
    values = np.take_along_axis(values, order, 0)
    draws = np.arange(latencies_ms.shape[1])[:, None]
    last = (~np.isnan(latencies_ms)).sum(0)[:, None] - 1
    passed = (latencies_ms[:, :, None] <= wanted_ms).sum(0)
    left = np.clip(passed - 1, 0, np.maximum(last - 1, 0))
    right = np.minimum(left + 1, np.maximum(last, 0))
    near_ms, far_ms = latencies_ms[left, draws], latencies_ms[right, draws]
    span_ms = far_ms - near_ms
    # Two points of one latency leave nothing to interpolate.
    passed_ms = np.clip(wanted_ms - near_ms, 0, span_ms)
    share = np.divide(passed_ms, span_ms, out=np.zeros_like(span_ms), where=span_ms > 0)
    found = values[left, draws] + share * (values[right, draws] - values[left, draws])
    reached = (last >= 0) & (latencies_ms[0][:, None] <= wanted_ms)
    return np.where(
        reached & (wanted_ms <= latencies_ms[np.maximum(last, 0), draws]), found, np.nan
    )
