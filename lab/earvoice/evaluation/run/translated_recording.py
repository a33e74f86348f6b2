"""What became of one recording: its units, segments and utterances, as a log keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.evaluation.clock import ElapsedClock, Segment, simuleval_elapsed
from earvoice.evaluation.text_unit import Unit


@dataclass(frozen=True)
class ReleasedUnit:
    """A word or a character.

    Attributes:
        text: without blanks.
        follows_blank: whether a blank stands before it.
        delay_ms: audio received at its release; a word that came in pieces is released with its
            last one.
        source_start_ms: where the audio that it attends to begins.
        source_end_ms: where that audio ends.
        utterance: the utterance that it belongs to, from 0.
        live_ms: wall clock from the first sample to its arrival.
    """

    text: str
    follows_blank: bool
    delay_ms: float
    source_start_ms: float
    source_end_ms: float
    utterance: int = 0
    live_ms: float = 0.0


@dataclass(frozen=True)
class UtteranceBorder:
    """Where an utterance begins and ends in the recording, in ms."""

    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class TranslatedRecording:
    """One recording and its translation.

    Attributes:
        index: place in the test set, from 0.
        source: path of the recording.
        source_length_ms: T, the audio that was received.
        reference: empty if there is none.
        target_language: BCP-47 tag.
        unit: what ``units`` are.
        units: the translation, in order.
        segments: every decided segment, silent ones too; their offsets are the units'.
        utterances: in order; empty if they were not told.
        replayable: every segment was decided, so that the clocks can be replayed from
            ``segments``; False if segments may have been merged.
        live: it was sent at real time, and ``live_ms`` of the units means something.
    """

    index: int
    source: str
    source_length_ms: float
    reference: str
    target_language: str
    unit: Unit
    units: tuple[ReleasedUnit, ...]
    segments: tuple[Segment, ...]
    utterances: tuple[UtteranceBorder, ...] = ()
    replayable: bool = True
    live: bool = False

    @property
    def prediction(self) -> str:
        """The translation as text."""
        pieces = (f" {unit.text}" if unit.follows_blank else unit.text for unit in self.units)
        return "".join(pieces).strip()

    @property
    def computation_ms(self) -> float:
        """Total computation of all services."""
        return sum(segment.computation_ms for segment in self.segments)

    @property
    def elapsed_clock(self) -> ElapsedClock:
        """Clock of ``elapsed_ms``: the one of SimulEval, or of the wall."""
        return "live" if self.live else "simuleval"

    @property
    def elapsed_ms(self) -> tuple[float, ...]:
        """Each unit's computation-aware time."""
        if self.live:
            return tuple(unit.live_ms for unit in self.units)
        return simuleval_elapsed(self.segments)
