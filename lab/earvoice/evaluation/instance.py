"""What is counted in a text: words, or characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from earvoice.evaluation.clock import Clock, ElapsedClock

Unit = Literal["word", "char"]

# Languages written without blanks between words.
_UNSPACED_LANGUAGES = ("zh", "ja")


def default_unit(language: str) -> Unit:
    """Return the unit of a language (BCP-47 tag; empty if nobody knows)."""
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


# Logs round their times: a delay this close to the end of the source is the end of the source.
_SNAP_MS = 0.05


@dataclass(frozen=True)
class Instance:
    """What the latency metrics are computed from; a value that it cannot have is a ValueError.

    Attributes:
        source_length_ms: T, above 0.
        delays_ms: d, for each unit of the hypothesis the audio received at its release; never
            falling; empty if there was no output.
        elapsed_ms: e, for each clock that is known, each unit's time; as long as ``delays_ms``.
        reference_units: m, at least 1; None if there is no reference.
        source_ends_ms: for each unit the end of the source interval that it attends to; None if
            the log does not say.
        recording_end_ms: end of the recording relative to the segment's start, where the instance
            is a segment that was cut out of a long output; None for a whole recording.
        computation_ms: total computation; None if unknown.
        source: path of the recording as the log has it; empty if it does not say.
        spoken_ends_ms: for each unit the end of the source word that it attends to, where a test
            set tells when each word was spoken; None if it does not.
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
                f"number of {name} = {len(times_ms)}: there must be as many as delays, "
                f"{len(self.delays_ms)}"
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
        """m, the reference's length; the hypothesis' without one."""
        return self.unit_count if self.reference_units is None else self.reference_units

    def times_ms(self, clock: Clock) -> tuple[float, ...] | None:
        """Return each unit's time on a clock; None if the log does not say it."""
        return self.delays_ms if clock == "ideal" else self.elapsed_ms.get(clock)


def snap_to_end(delays_ms: Sequence[float], source_length_ms: float) -> tuple[float, ...]:
    """Return the delays with those a rounding error off the source's end put onto it.

    Average lagging cuts at the first unit with d >= T, so a rounded T - 0.01 would move the cut.
    """
    return tuple(
        source_length_ms if abs(delay_ms - source_length_ms) < _SNAP_MS else delay_ms
        for delay_ms in delays_ms
    )
