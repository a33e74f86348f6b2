"""Points of one line, and the quality between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earvoice.evaluation.clock import Clock
from earvoice.evaluation.curve.point import CurvePoint
from earvoice.evaluation.curve.resampling import Resampler
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.resampling import Floats


@dataclass(frozen=True)
class CurveLine:
    """One line.

    Attributes:
        name: the policy, with the choices that set the line apart.
        points: at least one.
    """

    name: str
    points: tuple[CurvePoint, ...]


def group_points(points: Sequence[CurvePoint], keys: Sequence[str]) -> list[CurveLine]:
    """Return a line for each policy, and for each choice of the keys given.

    Raises:
        LogError: the points are not of the same test set.
    """
    _check_same_set(points)
    groups: dict[str, list[CurvePoint]] = {}
    for point in points:
        apart = [f"{key}={point.choices[key]}" for key in keys if key in point.choices]
        groups.setdefault(" ".join([point.policy, *apart]), []).append(point)
    return [CurveLine(name, tuple(group)) for name, group in groups.items()]


def quality_at(
    line: CurveLine, latency_ms: float, metric: str, clock: Clock, resampler: Resampler
) -> tuple[float | None, Floats]:
    """Return BLEU at a latency, and the same on each resampled test set, [resamples].

    Between two points it is interpolated linearly (Papi 2023, footnote 8). Outside the line's
    points there is none: None, and nan. Points without BLEU or without the clock are left out, and
    of a drawn set those that say nothing on it.
    """
    known = [
        (point, at_ms, point.bleu)
        for point in line.points
        if (at_ms := point.latency(metric, clock)) is not None and point.bleu is not None
    ]
    if not known:
        return None, np.full(resampler.resamples, np.nan)
    value = interpolate([(at_ms, bleu) for _, at_ms, bleu in known], latency_ms)
    sampled_ms = np.stack([resampler.latency(point, metric, clock)[1:] for point, *_ in known])
    sampled_bleu = np.stack([resampler.bleu(point)[1:] for point, *_ in known])
    samples = [
        interpolate(list(zip(times_ms, scores, strict=True)), latency_ms)
        for times_ms, scores in zip(sampled_ms.T.tolist(), sampled_bleu.T.tolist(), strict=True)
    ]
    return value, np.array([np.nan if sample is None else sample for sample in samples])


def interpolate(points: Sequence[tuple[float, float]], latency_ms: float) -> float | None:
    """Return the quality at a latency on the straight lines between points.

    Args:
        points: latency and quality, in any order; those whose latency is nan are left out.
        latency_ms: where.

    Returns:
        None outside the points.
    """
    ordered = sorted(point for point in points if not math.isnan(point[0]))
    if not ordered or not ordered[0][0] <= latency_ms <= ordered[-1][0]:
        return None
    latencies, qualities = zip(*ordered, strict=True)
    return float(np.interp(latency_ms, latencies, qualities))


def _check_same_set(points: Sequence[CurvePoint]) -> None:
    first = points[0]
    references = [instance.reference for instance in first.instances]
    for point in points[1:]:
        if [instance.reference for instance in point.instances] != references:
            raise LogError(point.report.path, f"is not of the same test set as {first.report.path}")
