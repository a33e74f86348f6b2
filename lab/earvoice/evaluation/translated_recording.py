"""What became of one recording: its units, segments and utterances, as a log keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from earvoice.client.errors import ProtocolError
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    SegmentDone,
    Started,
    Summary,
    TranslationEvent,
)
from earvoice.evaluation.clock import (
    ElapsedClock,
    TimedSegment,
    released_together,
    simuleval_elapsed,
)
from earvoice.evaluation.instance import Unit, split_text
from earvoice.evaluation.source_set import SourceRecording
from earvoice.evaluation.word_errors import plain_words
from earvoice.runtime.audio_format import WORDS


@dataclass(frozen=True)
class ReleasedUnit:
    """A word or a character.

    Attributes:
        delay_ms: audio received at its release; a word that came in pieces is released with its
            last one.
        source_start_ms: where the audio that it attends to begins.
        source_end_ms: where that audio ends.
        live_ms: wall clock from the first sample to its arrival.
        elapsed_ms: its time on the service's clock.
    """

    text: str
    follows_blank: bool
    delay_ms: float
    source_start_ms: float
    source_end_ms: float
    utterance: int = 0
    live_ms: float = 0.0
    segment: int = 0
    elapsed_ms: float = 0.0
    confidence: float = 1.0


@dataclass(frozen=True)
class TranslatedRecording:
    """One recording and its translation.

    Attributes:
        segments: every decided segment, silent ones too; their offsets are the units'.
        utterances: where each begins and ends in the recording, in ms; empty if nobody told.
        every_segment_decided: every segment was decided, so that ``segments`` tell
            all clocks; False if segments may have been merged.
        live: it was sent at real time, and ``live_ms`` of the units means something.
    """

    index: int
    source: str
    source_length_ms: float
    reference: str
    target_language: str
    unit: Unit
    units: tuple[ReleasedUnit, ...]
    segments: tuple[TimedSegment, ...]
    utterances: tuple[tuple[float, float], ...] = ()
    every_segment_decided: bool = True
    live: bool = False
    text: str | None = None
    """The source, where it is text."""

    @property
    def prediction(self) -> str:
        pieces = (f" {unit.text}" if unit.follows_blank else unit.text for unit in self.units)
        return "".join(pieces).strip()

    @property
    def computation_ms(self) -> float:
        return sum(segment.computation_ms for segment in self.segments)

    @property
    def elapsed_clock(self) -> ElapsedClock:
        """Clock of ``elapsed_ms``: the one of SimulEval, or of the wall."""
        return "live" if self.live else "simuleval"

    @property
    def elapsed_ms(self) -> tuple[float, ...]:
        if self.live:
            return tuple(unit.live_ms for unit in self.units)
        return simuleval_elapsed(self.segments)


@dataclass
class Collector:
    unit: Unit
    live: bool = False
    started: Started | None = None
    _units: list[ReleasedUnit] = field(default_factory=list)
    _segments: list[SegmentDone] = field(default_factory=list)
    _utterances: list[tuple[float, float]] = field(default_factory=list)
    _summary: Summary | None = None

    def add(self, event: TranslationEvent) -> None:
        match event:
            case Started():
                self.started = event
            case Committed():
                for word in event.words:
                    self._add_word(word)
            case SegmentDone():
                self._segments.append(event)
            case EndOfUtterance():
                self._utterances.append((event.start_ms, event.end_ms))
            case Summary():
                self._summary = event

    def finish(self, recording: SourceRecording, target_language: str) -> TranslatedRecording:
        """Return what was collected, after the session's last event."""
        if self._summary is None or self.started is None:
            raise ProtocolError("the server ended a session without a summary")
        if any(unit.segment >= len(self._segments) for unit in self._units):
            raise ProtocolError("the server released words after the last segment")
        every_segment_decided = self.started.elapsed_clock == "true"
        return TranslatedRecording(
            index=recording.index,
            source=str(recording.path),
            source_length_ms=self._summary.audio_ms,
            reference=recording.reference,
            target_language=target_language,
            unit=self.unit,
            units=tuple(self._units),
            segments=tuple(self._place_segments(every_segment_decided=every_segment_decided)),
            utterances=tuple(self._utterances),
            every_segment_decided=every_segment_decided,
            live=self.live,
            text=recording.text,
        )

    def _add_word(self, word: CommittedWord) -> None:
        texts = split_text(word.text, self.unit)
        first_starts_word = word.starts_word
        # A later piece of the word before completes it: the word has been released only now.
        if self.unit == "word" and self._units and not word.starts_word:
            before = self._units.pop()
            texts[0] = before.text + texts[0]
            first_starts_word = before.follows_blank
            word = replace(
                word,
                source_start_ms=min(before.source_start_ms, word.source_start_ms),
                source_end_ms=max(before.source_end_ms, word.source_end_ms),
                confidence=min(before.confidence, word.confidence)
                if plain_words(word.text)
                else before.confidence,
            )
        for place, text in enumerate(texts):
            unit = ReleasedUnit(
                text=text,
                follows_blank=first_starts_word if place == 0 else self.unit == "word",
                delay_ms=word.delay_ms,
                source_start_ms=word.source_start_ms,
                source_end_ms=word.source_end_ms,
                utterance=word.utterance,
                live_ms=word.received_ms,
                segment=len(self._segments),
                elapsed_ms=word.elapsed_ms,
                confidence=word.confidence,
            )
            self._units.append(unit)

    def _place_segments(self, *, every_segment_decided: bool) -> Iterator[TimedSegment]:
        """Yield the segments with the audio received when each was decided.

        An utterance can begin before the end of what was received; delays never go back. Only the
        clock ``true`` tells how long after its segment's start a unit left.
        """
        received_ms, finished_ms = 0.0, 0.0
        for number, done in enumerate(self._segments):
            received_ms = max(received_ms, done.end_ms)
            start_ms = max(received_ms, finished_ms)
            finished_ms = start_ms + done.computation_ms
            own = [unit for unit in self._units if unit.segment == number]
            if every_segment_decided:
                offsets_ms = tuple(unit.elapsed_ms - start_ms for unit in own)
                yield TimedSegment(received_ms, done.computation_ms, offsets_ms)
            else:
                yield released_together(received_ms, done.computation_ms, len(own))


def describe_instance(recording: TranslatedRecording) -> dict[str, Any]:
    """Return the line of a recording, numbers unrounded."""
    return {
        "index": recording.index,
        "prediction": recording.prediction,
        "delays": [unit.delay_ms for unit in recording.units],
        "elapsed": list(recording.elapsed_ms),
        "prediction_length": len(recording.units),
        "reference": recording.reference,
        "source": [recording.source, *([] if recording.text is None else [recording.text])],
        **({} if recording.text is None else {"source_word_ms": WORDS.position_ms(1)}),
        "source_length": recording.source_length_ms,
        "elapsed_clock": recording.elapsed_clock,
        "computation_ms": recording.computation_ms,
        "target_language": recording.target_language,
        "source_intervals": [
            [unit.source_start_ms, unit.source_end_ms] for unit in recording.units
        ],
        "confidences": [unit.confidence for unit in recording.units],
        "utterances": _describe_utterances(recording),
        "segments" if recording.every_segment_decided else "merged_segments": [
            {
                "end_ms": segment.end_ms,
                "computation_ms": segment.computation_ms,
                "units": len(segment.offsets_ms),
                "offsets_ms": list(segment.offsets_ms),
            }
            for segment in recording.segments
        ],
    }


def _describe_utterances(recording: TranslatedRecording) -> list[dict[str, float]]:
    counts = [0] * len(recording.utterances)
    for unit in recording.units:
        if counts:
            counts[unit.utterance] += 1
    return [
        {"start_ms": start_ms, "end_ms": end_ms, "units": count}
        for (start_ms, end_ms), count in zip(recording.utterances, counts, strict=True)
    ]
