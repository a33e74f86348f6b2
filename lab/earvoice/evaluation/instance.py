"""The units of a text, words or characters, and the clocks that time their release.

``ideal`` is the audio received at the release: computation takes no time on it. The others are
computation-aware. They answer different questions and are never mixed:

* ``simuleval``: the delay plus all computation since the first segment. It ignores that computation
  overlaps with incoming audio, and so over-states by an amount that grows with the input's length.
* ``true``: a segment starts when it has arrived and the one before is finished.
* ``live``: measured at the client on the wall clock; it cannot be computed from a log afterwards.
* ``segment``: the delay plus the computation of the unit's own segment. It hides a backlog, and is
  here only because simulstream, and OmniSTEval when it corrects SimulEval's times, report it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

Clock = Literal["ideal", "simuleval", "true", "live", "segment"]
ElapsedClock = Literal["simuleval", "true", "live", "segment"]
Unit = Literal["word", "char"]

# Languages written without blanks between words.
_UNSPACED_LANGUAGES = ("zh", "ja")


def default_unit(language: str) -> Unit:
    """Return the unit of a language (BCP-47 tag; empty if unknown)."""
    return "char" if primary_language(language) in _UNSPACED_LANGUAGES else "word"


def primary_language(language: str) -> str:
    return language.replace("_", "-").split("-")[0].lower()


def split_text(text: str, unit: Unit) -> list[str]:
    words = text.split()
    return words if unit == "word" else list("".join(words))


def count_units(text: str, unit: Unit, *, compatible: bool = False) -> int:
    """Return a reference's length.

    ``compatible`` counts as SimulEval and OmniSTEval do: a word between every two single
    blanks, so that double blanks count as words, and blanks as characters.
    """
    if not compatible:
        return len(split_text(text, unit))
    return len(text.split(" ")) if unit == "word" else len(text.strip())


# Logs round their times: a delay this close to the end of the source counts as the end.
_SNAP_MS = 0.05


@dataclass(frozen=True)
class Instance:
    """What the latency metrics are computed from; impossible values raise a ValueError.

    Attributes:
        source_length_ms: T, above 0.
        delays_ms: d, for each unit of the hypothesis the audio received at its release; never
            falling; empty if there was no output.
        elapsed_ms: e, each unit's time on each known clock; as long as ``delays_ms``.
        reference_units: m, at least 1; None if there is no reference.
        source_ends_ms: for each unit the end of the source interval that it attends to; None if
            the log does not say.
        recording_end_ms: end of the recording relative to the segment's start, where the instance
            is a segment that was cut out of a long output; None for a whole recording.
        computation_ms: total computation; None if unknown.
        source: path of the recording as the log has it; empty if it does not say.
        spoken_ends_ms: for each unit the end of the source word that it attends to, if the test
            set has the times of its words; None otherwise.
        utterances: the utterances that were translated one after the other, with times relative
            to their own start; empty if the instance is one utterance.
    """

    name: str
    unit: Unit
    source_length_ms: float
    delays_ms: tuple[float, ...]
    elapsed_ms: Mapping[ElapsedClock, tuple[float, ...]] = field(default_factory=dict)
    prediction: str = ""
    reference: str | None = None
    reference_units: int | None = None
    source_ends_ms: tuple[float, ...] | None = None
    recording_end_ms: float | None = None
    computation_ms: float | None = None
    source: str = ""
    spoken_ends_ms: tuple[float, ...] | None = None
    utterances: tuple[Instance, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.source_length_ms) and self.source_length_ms > 0):
            raise ValueError(f"source_length = {self.source_length_ms}: must be above 0")
        if self.reference_units is not None and self.reference_units < 1:
            raise ValueError(f"reference length = {self.reference_units}: must be above 0")
        self._check_times("delays", self.delays_ms)
        for before, after in pairwise(self.delays_ms):
            if after < before:
                raise ValueError(f"delays = {before}, {after}: must never fall")
        for clock, times_ms in self.elapsed_ms.items():
            self._check_times(f"elapsed ({clock})", times_ms)
        if self.source_ends_ms is not None:
            self._check_times("source ends", self.source_ends_ms)
        if self.spoken_ends_ms is not None:
            self._check_times("spoken ends", self.spoken_ends_ms)

    def _check_times(self, name: str, times_ms: Sequence[float]) -> None:
        if len(times_ms) != len(self.delays_ms):
            raise ValueError(
                f"number of {name} = {len(times_ms)}: must be that of delays, {len(self.delays_ms)}"
            )
        for time_ms in times_ms:
            if not math.isfinite(time_ms):
                raise ValueError(f"{name} = {time_ms}: must be finite")

    @property
    def unit_count(self) -> int:
        """n, the hypothesis' length."""
        return len(self.delays_ms)

    @property
    def target_units(self) -> int:
        """m, the reference's length; without a reference, the hypothesis' length."""
        return self.unit_count if self.reference_units is None else self.reference_units

    def times_ms(self, clock: Clock) -> tuple[float, ...] | None:
        """Return each unit's time on a clock; None if the log lacks it."""
        return self.delays_ms if clock == "ideal" else self.elapsed_ms.get(clock)


def snap_to_end(delays_ms: Sequence[float], source_length_ms: float) -> tuple[float, ...]:
    """Return the delays, those within a rounding error of the source's end set to the end.

    Average lagging cuts at the first unit with d >= T, so a rounded T - 0.01 would move the cut.
    """
    return tuple(
        source_length_ms if abs(delay_ms - source_length_ms) < _SNAP_MS else delay_ms
        for delay_ms in delays_ms
    )


@dataclass(frozen=True)
class TimedSegment:
    """One decided segment of a run that decided every segment.

    Attributes:
        end_ms: audio received when it was decided.
        offsets_ms: how long after the segment's start each of its units was released; within the
            computation.
    """

    end_ms: float
    computation_ms: float
    offsets_ms: tuple[float, ...] = ()


def released_together(end_ms: float, computation_ms: float, unit_count: int) -> TimedSegment:
    return TimedSegment(end_ms, computation_ms, (computation_ms,) * unit_count)


def correct_simuleval(delays_ms: Sequence[float], elapsed_ms: Sequence[float]) -> tuple[float, ...]:
    """Return times of the ``segment`` clock from those of ``simuleval``, as OmniSTEval does.

    A unit's own computation is the increase of the total, minus that of the delay, since the unit
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

    SimulEval takes the time at which a segment's output is returned, after all its computation.
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
    """Return each unit's time in ms on the two clocks that a log of every segment determines."""
    return {"simuleval": simuleval_elapsed(segments), "true": true_elapsed(segments)}
