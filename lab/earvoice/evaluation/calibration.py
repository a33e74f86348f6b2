"""How to choose the better of two curves, and which of its points to keep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from earvoice.evaluation.curves import read_point
from earvoice.evaluation.recording import RecordingError
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.score import ScoringOptions
from earvoice.models.config import PolicyDefaults
from earvoice.policies import AlignAtt, Edatt

if TYPE_CHECKING:
    from earvoice.evaluation.replay.run import Replay


LAGS_MS = (1000, 1250, 1500, 1750, 2000, 2500, 3000)
"""Latencies that count equally."""

MOST_POINTS = 6
"""Most points of a grid, as many as the papers' curves have."""

ParameterT = TypeVar("ParameterT", int, float)


@dataclass(frozen=True)
class TriedPoint(Generic[ParameterT]):
    parameter: ParameterT
    laal_ms: float
    score: float
    """BLEU of translations; for captions the percentage of words that are right, 100 - WER."""


def quality(points: Sequence[TriedPoint[ParameterT]]) -> float:
    """Return the mean, over `LAGS_MS`, of the score that a curve reaches within that lag.

    It is interpolated between points, and from the fastest point down to 0 at lag 0, so that a
    curve that begins just above one of the lags loses little.
    """
    front: list[TriedPoint[ParameterT]] = front_of(points)
    lags = [0.0, *(point.laal_ms for point in front)]
    scores = [0.0, *(point.score for point in front)]
    return float(np.interp(LAGS_MS, lags, scores).mean())


def front_of(points: Sequence[TriedPoint[ParameterT]]) -> list[TriedPoint[ParameterT]]:
    """Return the Pareto front of latency and quality, fastest point first."""
    front: list[TriedPoint[ParameterT]] = []
    for point in sorted(points, key=lambda point: (point.laal_ms, -point.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def grid_of(points: Sequence[TriedPoint[ParameterT]]) -> tuple[ParameterT, ...]:
    """Return at most `MOST_POINTS` values from the front, evenly spread over its latencies."""
    front = front_of(points)
    lags = np.array([point.laal_ms for point in front])
    wanted = np.linspace(lags[0], lags[-1], MOST_POINTS)
    nearest = sorted({int(np.abs(lags - lag).argmin()) for lag in wanted})
    return tuple(front[place].parameter for place in nearest)


def default_of(points: Sequence[TriedPoint[ParameterT]], most_lag_ms: float) -> ParameterT:
    """Return the value of best quality within a lag; the fastest if none is within."""
    front = front_of(points)
    allowed = [point for point in front if point.laal_ms <= most_lag_ms]
    return (allowed[-1] if allowed else front[0]).parameter


def best_of(qualities: Mapping[str, float], usual: str, least_gain: float) -> str:
    """Return the name of the best curve: the usual one unless another gains `least_gain`."""
    best = max(qualities, key=lambda name: qualities[name])
    return best if qualities[best] >= qualities[usual] + least_gain else usual


ALPHAS = (0.6, 0.4, 0.2, 0.1, 0.05, 0.03)
"""From Papi 2023."""
FINE_ALPHAS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)
LAMBDAS = (1, 2, 4, 6)
FRAMES = (1, 2, 3, 4, 6, 8, 12, 16)
USUAL_LAMBDA = 2
LEAST_HEAD_GAIN = 0.5
"""By how much one head must beat the mean of all: the best of several is partly chance."""
LEAST_LAMBDA_GAIN = 0.2


def calibrate(
    replay: Replay,
    output: Path,
    segment_ms: int,
    most_lag_ms: float,
    before: PolicyDefaults,
    *,
    are_captions: bool,
) -> PolicyDefaults:
    """Choose parameters on a recorded set with references; the policy itself is not changed.

    Args:
        output: where the replays go.
        most_lag_ms: highest mean LAAL allowed for the default alpha and f.
        are_captions: whether the target is the speaker's own language.
    """

    def tried(
        values: Sequence[ParameterT], policy_of: Callable[[ParameterT], Edatt | AlignAtt]
    ) -> list[TriedPoint[ParameterT]]:
        replay.run([ReplaySetting(policy_of(value), segment_ms) for value in values], output)
        return read(values, policy_of)

    def read(
        values: Sequence[ParameterT], policy_of: Callable[[ParameterT], Edatt | AlignAtt]
    ) -> list[TriedPoint[ParameterT]]:
        settings = [ReplaySetting(policy_of(value), segment_ms) for value in values]
        points = [read_point(output / setting.name, ScoringOptions()) for setting in settings]
        found: list[TriedPoint[ParameterT]] = []
        for value, point in zip(values, points, strict=True):
            laal_ms, quality_of = point.latency("LAAL", "ideal"), point.report.quality
            if quality_of is None:
                raise RecordingError(f"{replay.recording.folder} has no references")
            if laal_ms is not None:
                score = 100 - quality_of.wer if are_captions else quality_of.bleu
                found.append(TriedPoint(value, laal_ms, score))
        if not found:
            raise RecordingError(f"no setting like {settings[0].name} wrote anything")
        return found

    def best(name: str, candidates: Mapping[str, Edatt], usual: str, least_gain: float) -> str:
        # In one run, so that they share hypotheses.
        replay.run(
            [
                ReplaySetting(replace(policy, alpha=alpha), segment_ms)
                for policy in candidates.values()
                for alpha in ALPHAS
            ],
            output,
        )
        qualities = {
            value: quality(read(ALPHAS, partial(_with_alpha, policy)))
            for value, policy in candidates.items()
        }
        chosen = best_of(qualities, usual, least_gain)
        shown = ", ".join(f"{value} {score:.2f}" for value, score in qualities.items())
        sys.stdout.write(f"{name}: {shown}; chosen: {chosen}\n")
        return chosen

    usual = Edatt(lambda_states=USUAL_LAMBDA)
    last = replay.served.description.decoder_layer_count
    every = tuple(range(1, replay.served.description.decoder_head_count + 1))
    layers = {
        str(number): replace(usual, attention_layer=number, attention_heads=every)
        for number in range(1, last + 1)
    }
    layer = int(best("layer", layers, str(last), 0.0))
    choices = {"all": every} | {str(head): (head,) for head in every}
    by_heads = {
        name: replace(usual, attention_layer=layer, attention_heads=heads)
        for name, heads in choices.items()
    }
    heads = choices[best("heads", by_heads, "all", LEAST_HEAD_GAIN)]
    lambdas = {
        str(count): Edatt(lambda_states=count, attention_layer=layer, attention_heads=heads)
        for count in LAMBDAS
    }
    lambda_states = int(best("lambda", lambdas, str(USUAL_LAMBDA), LEAST_LAMBDA_GAIN))
    alphas = tried(
        FINE_ALPHAS, lambda alpha: Edatt(alpha, lambda_states, layer, attention_heads=heads)
    )
    frames = tried(FRAMES, lambda count: AlignAtt(count, layer, heads))
    return replace(
        before,
        attention_layer=layer,
        attention_heads=() if heads == every else heads,
        lambda_states=lambda_states,
        alpha=default_of(alphas, most_lag_ms),
        alphas=grid_of(alphas),
        frames=default_of(frames, most_lag_ms),
        frame_distances=grid_of(frames),
        segment_ms=segment_ms,
    )


def _with_alpha(policy: Edatt, alpha: float) -> Edatt:
    return replace(policy, alpha=alpha)
