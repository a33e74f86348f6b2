"""The result of one recording as a log keeps it: its units, segments and utterances."""

from __future__ import annotations

from collections import Counter
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
from earvoice.evaluation.instance import (
    TimedSegment,
    Unit,
    released_together,
    simuleval_elapsed,
    split_text,
)
from earvoice.evaluation.quality import plain_words
from earvoice.evaluation.source_set import SourceRecording
from earvoice.runtime.audio_format import WORDS


@dataclass
class Collector:
    """Collects a session's events.

    Args:
        unit: whether words or characters are the units.
        live: audio is sent in real time, so that the time when a word was received is meaningful.
    """

    unit: Unit
    live: bool = False
    started: Started | None = None
    _units: list[tuple[CommittedWord, int]] = field(default_factory=list)
    """Each with the number of its segment."""
    _segments: list[SegmentDone] = field(default_factory=list)
    _utterances: list[EndOfUtterance] = field(default_factory=list)
    _summary: Summary | None = None

    def add(self, event: TranslationEvent | None) -> None:
        match event:
            case Started():
                self.started = event
            case Committed():
                for word in event.words:
                    self._add_word(word)
            case SegmentDone():
                self._segments.append(event)
            case EndOfUtterance():
                self._utterances.append(event)
            case Summary():
                self._summary = event

    def finish(self, recording: SourceRecording, target_language: str) -> dict[str, Any]:
        """Return the recording's log line, numbers unrounded; call after the session's last event.

        If not every segment was decided, segments may have been merged, and no clock can be
        computed from them.
        """
        if self._summary is None or self.started is None:
            raise ProtocolError("the server ended a session without a summary")
        if any(segment >= len(self._segments) for _, segment in self._units):
            raise ProtocolError("the server released words after the last segment")
        every_segment_decided = self.started.elapsed_clock == "true"
        segments = list(self._place_segments(every_segment_decided=every_segment_decided))
        units = [unit for unit, _ in self._units]
        counts = Counter(unit.utterance for unit in units)
        is_text = recording.text is not None
        return {
            "index": recording.index,
            "prediction": "".join(
                f" {unit.text}" if unit.starts_word else unit.text for unit in units
            ).strip(),
            "delays": [unit.delay_ms for unit in units],
            "elapsed": [unit.received_ms for unit in units]
            if self.live
            else list(simuleval_elapsed(segments)),
            "prediction_length": len(units),
            "reference": recording.reference,
            "source": [str(recording.path), *([recording.text] if is_text else [])],
            **({"source_word_ms": WORDS.position_ms(1)} if is_text else {}),
            "source_length": self._summary.audio_ms,
            "elapsed_clock": "live" if self.live else "simuleval",
            "computation_ms": sum(segment.computation_ms for segment in segments),
            "target_language": target_language,
            "source_intervals": [[unit.source_start_ms, unit.source_end_ms] for unit in units],
            "confidences": [unit.confidence for unit in units],
            "utterances": [
                {
                    "start_ms": border.start_ms,
                    "end_ms": border.end_ms,
                    "units": counts[border.utterance],
                    **(
                        {"source_transcript": border.source_transcript}
                        if self.started.options.transcript
                        else {}
                    ),
                }
                for border in self._utterances
            ],
            "segments" if every_segment_decided else "merged_segments": [
                describe_segment(segment) for segment in segments
            ],
        }

    def _add_word(self, word: CommittedWord) -> None:
        texts = split_text(word.text, self.unit)
        # This piece continues the previous word, which therefore counts as released only now.
        if self.unit == "word" and self._units and not word.starts_word:
            before, _ = self._units.pop()
            texts[0] = before.text + texts[0]
            word = replace(
                word,
                starts_word=before.starts_word,
                source_start_ms=min(before.source_start_ms, word.source_start_ms),
                source_end_ms=max(before.source_end_ms, word.source_end_ms),
                confidence=min(before.confidence, word.confidence)
                if plain_words(word.text)
                else before.confidence,
            )
        for place, text in enumerate(texts):
            starts_word = word.starts_word if place == 0 else self.unit == "word"
            unit = replace(word, text=text, starts_word=starts_word)
            self._units.append((unit, len(self._segments)))

    def _place_segments(self, *, every_segment_decided: bool) -> Iterator[TimedSegment]:
        """Yield the segments with the audio received when each was decided.

        An utterance can begin before the end of the received audio; delays never decrease. A
        unit's offset from its segment's start is meaningful only on the clock ``true``.
        """
        received_ms, finished_ms = 0.0, 0.0
        for number, done in enumerate(self._segments):
            received_ms = max(received_ms, done.end_ms)
            start_ms = max(received_ms, finished_ms)
            finished_ms = start_ms + done.computation_ms
            own = [unit for unit, segment in self._units if segment == number]
            if every_segment_decided:
                offsets_ms = tuple(unit.elapsed_ms - start_ms for unit in own)
                yield TimedSegment(received_ms, done.computation_ms, offsets_ms)
            else:
                yield released_together(received_ms, done.computation_ms, len(own))


def describe_segment(segment: TimedSegment) -> dict[str, Any]:
    return {
        "end_ms": segment.end_ms,
        "computation_ms": segment.computation_ms,
        "units": len(segment.offsets_ms),
        "offsets_ms": list(segment.offsets_ms),
    }
