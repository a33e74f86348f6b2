"""The clocks of a release, and what a log of every segment tells of them.

``ideal`` is the audio received at the release: computation costs nothing on it. The others are
computation-aware. They answer different questions and are never mixed:

* ``simuleval``: the delay plus all computation since the first segment. Computation never overlaps
  with incoming audio, so it over-states by an amount that grows with the length of the input.
* ``true``: a segment starts when it has arrived and the one before is finished.
* ``live``: measured at the client on the wall clock; no log tells it afterwards.
* ``segment``: the delay plus the computation of the unit's own segment. It hides a backlog, and is
  here only because simulstream, and OmniSTEval when it corrects SimulEval's times, report it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Clock = Literal["ideal", "simuleval", "true", "live", "segment"]
ElapsedClock = Literal["simuleval", "true", "live", "segment"]


@dataclass(frozen=True)
class TimedSegment:
    """One decided segment of a run that decided every segment.

    Attributes:
        end_ms: audio received when it was decided.
        offsets_ms: for each unit that it released, how long after its start the unit left;
            within the computation.
    """

    end_ms: float
    computation_ms: float
    offsets_ms: tuple[float, ...] = ()


def released_together(end_ms: float, computation_ms: float, unit_count: int) -> TimedSegment:
    return TimedSegment(end_ms, computation_ms, (computation_ms,) * unit_count)


def correct_simuleval(delays_ms: Sequence[float], elapsed_ms: Sequence[float]) -> tuple[float, ...]:
    """Return times of the ``segment`` clock from those of ``simuleval``, as OmniSTEval has them.

    A unit's own computation is by how much more the total grew than the delay since the unit
    before; the times never fall. For logs that do not list their segments.
    """
    if not elapsed_ms:
        return ()
    before = zip(delays_ms, elapsed_ms, strict=True)
    own_ms = (
        later_ms - e_ms + d_ms
        for later_ms, (d_ms, e_ms) in zip(elapsed_ms[1:], before, strict=False)
    )
    return tuple(accumulate((elapsed_ms[0], *own_ms), max))


def delays(segments: Sequence[TimedSegment]) -> tuple[float, ...]:
    return tuple(segment.end_ms for segment in segments for _ in segment.offsets_ms)


def simuleval_elapsed(segments: Sequence[TimedSegment]) -> tuple[float, ...]:
    """Return each unit's time on the ``simuleval`` clock, in ms.

    SimulEval takes the time when a segment's output is handed over: after all its computation.
    """
    totals_ms = accumulate(segment.computation_ms for segment in segments)
    return tuple(
        segment.end_ms + total_ms
        for segment, total_ms in zip(segments, totals_ms, strict=True)
        for _ in segment.offsets_ms
    )


def true_elapsed(segments: Sequence[TimedSegment]) -> tuple[float, ...]:
    """Return each unit's time on the ``true`` clock, in ms: its segment's start + its offset."""
    times_ms: list[float] = []
    finished_ms = 0.0
    for segment in segments:
        start_ms = max(segment.end_ms, finished_ms)
        times_ms.extend(start_ms + offset_ms for offset_ms in segment.offsets_ms)
        finished_ms = start_ms + segment.computation_ms
    return tuple(times_ms)


def segment_elapsed(segments: Sequence[TimedSegment]) -> tuple[float, ...]:
    """Return each unit's time on the ``segment`` clock, in ms."""
    return tuple(
        segment.end_ms + segment.computation_ms for segment in segments for _ in segment.offsets_ms
    )


def elapsed_by_clock(segments: Sequence[TimedSegment]) -> dict[ElapsedClock, tuple[float, ...]]:
    """Return each unit's time in ms on the two clocks that a log of every segment can tell."""
    return {"simuleval": simuleval_elapsed(segments), "true": true_elapsed(segments)}
