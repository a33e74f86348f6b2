"""Where segments and utterances end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from earvoice.policy.evidence import Evidence
from earvoice.policy.stream_options import StreamOptions


@dataclass(frozen=True)
class Segment:
    """A piece of an utterance that is decided at once.

    Attributes:
        index: its boundary's number on the grid, from 1.
        grid_end_sample: where it would end had nothing been merged into it.
        final: whether the audio ends with it. A full segment is never final.
    """

    index: int
    end_sample: int
    grid_end_sample: int
    merged_count: int = 0
    final: bool = False


@dataclass(frozen=True)
class SegmentGrid:
    """The boundaries of an utterance's segments, counted from an anchor on."""

    rate_hertz: int
    segment_ms: int
    wait_ms: int
    anchor_sample: int = 0
    anchor_index: int = 0

    def boundary(self, index: int) -> int:
        """Return where segment ``index`` ends; the anchor for all that end before it."""
        if index <= self.anchor_index:
            return self.anchor_sample
        total_ms = self.wait_ms + (index - self.anchor_index) * self.segment_ms
        return self.anchor_sample + total_ms * self.rate_hertz // 1000

    def moved(
        self, segment_ms: int, wait_ms: int, last_index: int, past_sample: int
    ) -> SegmentGrid:
        """Return the grid that continues from a boundary with another segment duration.

        Args:
            last_index: the boundary decided last; the new grid begins there.
            past_sample: boundaries of the new grid that are not after this are left out.
        """
        anchor_sample = self.boundary(last_index)
        first = SegmentGrid(self.rate_hertz, segment_ms, wait_ms, anchor_sample, last_index)
        skipped = first.index_at(past_sample) - last_index
        return replace(first, wait_ms=wait_ms + skipped * segment_ms)

    def next_end(self, last_index: int, limit_sample: int | None) -> int:
        """Return where the segment after this one ends: at its boundary, or at the limit."""
        boundary = self.boundary(last_index + 1)
        return boundary if limit_sample is None else min(boundary, limit_sample)

    def next_segment(
        self,
        last_index: int,
        received_samples: int,
        *,
        ended: bool,
        merge: bool,
        limit_sample: int | None = None,
    ) -> Segment | None:
        """Return the segment that is due, or None when more audio must come first.

        Args:
            merge: go to the newest full boundary instead of the next.
            limit_sample: no segment ends after this; None for no limit.
        """
        grid_end = self.next_end(last_index, limit_sample)
        if received_samples >= grid_end:
            reach = (
                received_samples if limit_sample is None else min(received_samples, limit_sample)
            )
            index = max(last_index + 1, self.index_at(reach)) if merge else last_index + 1
            end_sample = self.next_end(index - 1, limit_sample)
            return Segment(index, end_sample, grid_end, merged_count=index - last_index - 1)
        if ended:
            return Segment(last_index + 1, received_samples, received_samples, final=True)
        return None

    def index_at(self, sample: int) -> int:
        """Return the number of the last boundary up to a position, at least the anchor's."""
        waited = (sample - self.anchor_sample) * 1000 - self.wait_ms * self.rate_hertz
        index = self.anchor_index + max(0, waited // (self.segment_ms * self.rate_hertz))
        # Boundaries are rounded down to whole samples, so the next one may be reached already.
        return index + 1 if self.boundary(index + 1) <= sample else index


LEADING_SILENCE_MS = 5000
"""Silence from the start of an utterance that ends it without a word."""
KEPT_SILENCE_MS = 500
"""Of that silence, what the next utterance keeps: speech may have just begun in it."""


EndCause = Literal["pause", "forced", "end_of_audio"]


@dataclass(frozen=True)
class Endpoint:
    end_sample: int
    cause: EndCause


MAX_KEPT_MS = 40_000
"""Without endpointing, an utterance is cut before history selection keeps more of it than this, or
than the model can hear."""


class Endpointer:
    """Finds the end of utterances: with the audio, at a pause, in a loop, or before the limit.

    Args:
        pause_ms: a pause this long ends an utterance; None where pauses end none.
        in_sentence_ms: a pause that ends one within a sentence; None for the same.
        limit_ms: longest utterance; None for any.
        ends_loops: whether a loop ends one.
    """

    def __init__(
        self,
        sample_rate_hertz: int,
        pause_ms: int | None,
        limit_ms: int | None = None,
        *,
        in_sentence_ms: int | None = None,
        ends_loops: bool = True,
    ) -> None:
        self._ends_at_pauses = pause_ms is not None
        self._ends_loops = ends_loops
        self._pause_samples = (pause_ms or 0) * sample_rate_hertz // 1000
        self._in_sentence_samples = (in_sentence_ms or pause_ms or 0) * sample_rate_hertz // 1000
        self._leading_silence_samples = LEADING_SILENCE_MS * sample_rate_hertz // 1000
        self._kept_silence_samples = KEPT_SILENCE_MS * sample_rate_hertz // 1000
        self._limit_samples = None if limit_ms is None else limit_ms * sample_rate_hertz // 1000

    @classmethod
    def of(cls, options: StreamOptions) -> Endpointer:
        rate_hertz = options.audio_format.sample_rate_hz
        if options.endpointing is not None:
            asked = options.endpointing
            if options.audio_format.encoding == "words":
                # In a text source the end of a sentence is marked, and takes no time.
                return cls(rate_hertz, 0, asked.max_utterance_ms)
            in_sentence_ms = asked.pause_in_sentence_ms
            limit_ms = asked.max_utterance_ms
            return cls(rate_hertz, asked.pause_ms, limit_ms, in_sentence_ms=in_sentence_ms)
        # Without endpointing the client has cut the audio: what is too long to hear is cut again.
        longest_ms = options.longest_utterance_ms
        if options.history_selection is None:
            return cls(rate_hertz, None, longest_ms, ends_loops=False)
        return cls(rate_hertz, None, min(MAX_KEPT_MS, longest_ms or MAX_KEPT_MS))

    def limit_sample(self, start_sample: int) -> int | None:
        return None if self._limit_samples is None else start_sample + self._limit_samples

    def known_end(
        self, segment: Segment, start_sample: int, spoken_for_sample: int, *, loops: bool
    ) -> Endpoint | None:
        """Return an end that does not depend on what is heard: the audio's, or that of a loop.

        Where the client has cut the audio, not even a loop ends an utterance. The next one begins
        after the committed words, but not before half of the audio: otherwise text that attends
        to the beginning only would make us decode the same audio again and again.
        """
        if loops and self._ends_loops:
            half_sample = (start_sample + segment.end_sample) // 2
            return Endpoint(max(half_sample, spoken_for_sample), "forced")
        if segment.final:
            return Endpoint(segment.end_sample, "end_of_audio")
        return None

    def find_pause(
        self,
        evidence: Evidence,
        start_sample: int,
        end_sample: int,
        spoken_for_sample: int,
        previous_end_sample: int = 0,
        *,
        in_sentence: bool = False,
    ) -> Endpoint | None:
        """Return the end if the audio has paused long enough, even if speech has resumed since.

        None where pauses end no utterance.

        A speaker who pauses within a sentence goes on with it, and its parts are understood and
        translated better together.

        A pause counts from the later of the last speech and the last CTC label in it, so that
        speech which only one of the two detects is not cut off. Labels can delay it by one pause
        at most: a network can hear words in noise without end.

        Args:
            spoken_for_sample: committed words attend to audio up to here; the utterance does not
                end before it.
            previous_end_sample: end of the segment before. Pauses that were over then are not
                judged again, if they may have been within a sentence.
            in_sentence: whether the text of that segment ends within a sentence.
        """
        if not self._ends_at_pauses:
            return None
        voice = evidence.voice_activity
        if not voice.has_speech:
            if end_sample - start_sample < self._leading_silence_samples:
                return None
            quiet_end = end_sample - self._kept_silence_samples
            return Endpoint(max(quiet_end, spoken_for_sample), "pause")
        for start, end in _pauses(evidence, end_sample):
            if end <= previous_end_sample and self._in_sentence_samples > self._pause_samples:
                continue
            # Of a pause that begins later, that text does not say whether it is in a sentence.
            waits = in_sentence and start < previous_end_sample
            needed_samples = self._in_sentence_samples if waits else self._pause_samples
            quiet_from = self._quiet_from(evidence, start_sample, start, end)
            # The next utterance begins with half a pause of silence, not with all of it.
            place = max(end - self._pause_samples // 2, spoken_for_sample)
            if end - quiet_from >= needed_samples and place <= end:
                return Endpoint(place, "pause")
        return None

    def _quiet_from(
        self, evidence: Evidence, utterance_start: int, pause_start: int, pause_end: int
    ) -> int:
        latest = pause_start + self._pause_samples
        for state, label in enumerate(evidence.ctc_labels):
            if label != evidence.blank_label:
                first, last = evidence.span(state, utterance_start)
                if pause_start < last and first < pause_end:
                    pause_start = last
        return min(pause_start, latest)

    def cut(
        self, evidence: Evidence, start_sample: int, end_sample: int, spoken_for_sample: int
    ) -> Endpoint:
        """Return the best place to cut an utterance that may not grow.

        The middle of the longest pause in its second half; without one, of the longest run of CTC
        blanks there; else its end.

        Args:
            spoken_for_sample: committed words attend to audio up to here; a cut before it would
                translate that audio twice.
        """
        earliest = max((start_sample + end_sample) // 2, spoken_for_sample)
        for gaps in (_pauses(evidence, end_sample), _blank_runs(evidence, start_sample)):
            middles = [
                (end - start, (start + end) // 2)
                for start, end in gaps
                if (start + end) // 2 > earliest
            ]
            if middles:
                return Endpoint(max(middles)[1], "forced")
        return Endpoint(end_sample, "forced")


def _pauses(evidence: Evidence, end_sample: int) -> Iterator[tuple[int, int]]:
    voice = evidence.voice_activity
    if voice.has_speech:
        yield from voice.pauses
        if voice.speech_end_sample < end_sample:
            yield voice.speech_end_sample, end_sample


def _blank_runs(evidence: Evidence, start_sample: int) -> Iterator[tuple[int, int]]:
    states = enumerate(evidence.ctc_labels)
    for is_blank, run in groupby(states, lambda state: state[1] == evidence.blank_label):
        if is_blank:
            spans = [evidence.span(state, start_sample) for state, _ in run]
            yield spans[0][0], spans[-1][1]
