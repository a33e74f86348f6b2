"""From the events of one session to what a log keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from earvoice.client.errors import ProtocolError
from earvoice.client.event import Committed, EndOfUtterance, SegmentDone, Started, Summary
from earvoice.evaluation.clock import Segment, released_together
from earvoice.evaluation.run.translated_recording import (
    ReleasedUnit,
    TranslatedRecording,
    UtteranceBorder,
)
from earvoice.evaluation.text_unit import split_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from earvoice.client.event import CommittedWord, TranslationEvent
    from earvoice.evaluation.run.source_list import SourceRecording
    from earvoice.evaluation.text_unit import Unit


@dataclass
class _TimedUnit:
    """A unit, the segment that released it, and its time on the service's clock."""

    released: ReleasedUnit
    segment: int
    elapsed_ms: float


@dataclass
class Collector:
    """Collects one session.

    Attributes:
        unit: what is counted.
        live: the audio is sent at real time.
        started: the session's first event; None before it.
    """

    unit: Unit
    live: bool = False
    started: Started | None = None
    _units: list[_TimedUnit] = field(default_factory=list)
    _segments: list[SegmentDone] = field(default_factory=list)
    _utterances: list[UtteranceBorder] = field(default_factory=list)
    _summary: Summary | None = None

    def add(self, event: TranslationEvent) -> None:
        """Take an event."""
        match event:
            case Started():
                self.started = event
            case Committed():
                for word in event.words:
                    self._add_word(word)
            case SegmentDone():
                self._segments.append(event)
            case EndOfUtterance():
                self._utterances.append(UtteranceBorder(event.start_ms, event.end_ms))
            case Summary():
                self._summary = event

    def finish(self, recording: SourceRecording, target_language: str) -> TranslatedRecording:
        """Return what was collected, after the session's last event.

        Raises:
            ProtocolError: the session has no summary, or released words outside its segments.
        """
        if self._summary is None or self.started is None:
            raise ProtocolError("the server ended a session without a summary")
        if any(unit.segment >= len(self._segments) for unit in self._units):
            raise ProtocolError("the server released words after the last segment")
        replayable = self.started.elapsed_clock == "true"
        return TranslatedRecording(
            index=recording.index,
            source=str(recording.path),
            source_length_ms=self._summary.audio_ms,
            reference=recording.reference,
            target_language=target_language,
            unit=self.unit,
            units=tuple(unit.released for unit in self._units),
            segments=tuple(self._place_segments(replayable=replayable)),
            utterances=tuple(self._utterances),
            replayable=replayable,
            live=self.live,
        )

    def _add_word(self, word: CommittedWord) -> None:
        texts = split_text(word.text, self.unit)
        first_starts_word = word.starts_word
        # A later piece of the word before completes it: the word has been released only now.
        if self.unit == "word" and self._units and not word.starts_word:
            before = self._units.pop().released
            texts[0] = before.text + texts[0]
            first_starts_word = before.follows_blank
            word = replace(
                word,
                source_start_ms=min(before.source_start_ms, word.source_start_ms),
                source_end_ms=max(before.source_end_ms, word.source_end_ms),
            )
        for place, text in enumerate(texts):
            released = ReleasedUnit(
                text=text,
                follows_blank=first_starts_word if place == 0 else self.unit == "word",
                delay_ms=word.delay_ms,
                source_start_ms=word.source_start_ms,
                source_end_ms=word.source_end_ms,
                utterance=word.utterance,
                live_ms=word.received_ms,
            )
            self._units.append(_TimedUnit(released, len(self._segments), word.elapsed_ms))

    def _place_segments(self, *, replayable: bool) -> Iterator[Segment]:
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
            if replayable:
                offsets_ms = tuple(unit.elapsed_ms - start_ms for unit in own)
                yield Segment(received_ms, done.computation_ms, offsets_ms)
            else:
                yield released_together(received_ms, done.computation_ms, len(own))
