"""One session: segments are encoded, decoded and decided, utterance after utterance."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import DecoderBackend, Encoded, EncoderBackend
from earvoice.policy.endpoints import Endpoint, Endpointer, Segment, SegmentGrid
from earvoice.policy.event import (
    Event,
    SegmentWorked,
    SessionSnapshot,
    TailChanged,
    UtteranceEnded,
    WordsReleased,
)
from earvoice.policy.guards import Guards
from earvoice.policy.lag_control import lag_after, options_at_lag
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import SegmentTimeline
from earvoice.policy.translation import translate
from earvoice.policy.utterance import Utterance, UtteranceState

MAX_WAITING_UPDATES = 64


class SegmentObserver:
    """Is notified of each segment; this one does nothing. Observers must neither wait nor fail."""

    def begin(self, timeline: SegmentTimeline) -> None:
        """Work on a segment begins; its requests to encoder and decoder follow."""

    def end(self, timeline: SegmentTimeline, worked: SegmentWorked) -> None:
        """The segment is finished."""


class TranslationSession:
    """Drives the loop of one stream."""

    def __init__(
        self,
        options: StreamOptions,
        encoder: EncoderBackend,
        decoder: DecoderBackend,
        audio: AudioBuffer,
        emit: Callable[[Event], Awaitable[None]],
        now_s: Callable[[], float],
        observer: SegmentObserver | None = None,
        resumed: SessionSnapshot | None = None,
    ) -> None:
        start = resumed or SessionSnapshot(options)
        self._start = start
        self._encoder = encoder
        self._decoder = decoder
        self._audio = audio
        self._emit = emit
        self._now_s = now_s
        self._observer = observer or SegmentObserver()
        # Changes that wait for the first segment that ends after them.
        self._updates: deque[tuple[int, StreamOptions]] = deque()
        self._update_taken = asyncio.Event()
        self._endpointer = Endpointer.of(start.options)
        self._guards = Guards(start.totals.guards_hit)
        lag_ms = start.lag_ms
        self._lag_ms = start.options.target_lag_ms if lag_ms is None else lag_ms
        self._choose(start.options)
        self._grid = start.grid or self._fresh_grid(start.start_sample)
        # An utterance may begin before the end of audio that was already decided.
        self._decided_sample = start.decided_sample
        self._true_finished_ms = start.true_finished_ms
        # Which tail the client of a resumed session shows is unknown.
        self._tail = None if resumed else ""
        self.totals = replace(start.totals)

    async def run(self) -> None:
        """Process the audio to its end; the totals are emitted last."""
        if self._start.segment is not None:
            await self._emit(self._start.segment)
        if self._start.end is not None:
            await self._emit(replace(self._start.end, snapshot=self._start.told))
        utterance = Utterance(self._start.utterance, self._options.policy.begin())
        while await self._has_audio_from(utterance.start_sample):
            if not utterance.segment_index:
                self._grid = self._fresh_grid(utterance.begin_sample)
            endpoint: Endpoint | None = None
            while endpoint is None:
                # Before the next segment is there, so that none waits for it.
                await self._reset_encoder(utterance)
                free_s = self._now_s()
                segment = await self._next_segment(utterance)
                timeline = self._timeline(utterance, segment, free_s)
                endpoint = await self._work_on(utterance, segment, timeline)
                done_sample = endpoint.end_sample if endpoint else utterance.start_sample
                self._audio.release_before(done_sample)
            utterance = self._utterance_after(utterance, endpoint.end_sample)
        self.totals.audio_samples = self._audio.received_samples
        self.totals.guards_hit = dict(self._guards.hits)
        await self._emit(self.totals)

    async def update(self, options: StreamOptions) -> None:
        """Change the options from the first segment on that ends after the audio received so far.

        Waits while too many changes are pending. Of several at one position the last counts,
        because each holds all options. So a full queue has only changes that lie before received
        audio: the session gets to them, and the wait ends.

        Args:
            options: as before but for policy, attention, beam, segment duration and initial wait.
        """
        position_sample = self._audio.received_samples
        if self._updates and self._updates[-1][0] == position_sample:
            self._updates.pop()
        while len(self._updates) >= MAX_WAITING_UPDATES:
            self._update_taken.clear()
            await self._update_taken.wait()
        self._updates.append((position_sample, options))
        await self._audio.interrupt()

    async def _has_audio_from(self, sample: int) -> bool:
        while self._audio.received_samples <= sample and not self._audio.ended:
            await self._audio.wait_for(sample + 1)
        return self._audio.received_samples > sample

    async def _next_segment(self, utterance: Utterance) -> Segment:
        while True:
            limit_sample = self._endpointer.limit_sample(utterance.start_sample)
            next_end_sample = self._grid.next_end(utterance.segment_index, limit_sample)
            segment = self._grid.next_segment(
                utterance.segment_index,
                self._audio.received_samples,
                ended=self._audio.ended,
                merge=self._options.merges_segments,
                limit_sample=limit_sample,
            )
            # A final segment ends before its boundary, a merged one after it.
            reach_sample = max(next_end_sample, segment.end_sample if segment else 0)
            if self._updates and self._updates[0][0] < reach_sample:
                position_sample, options = self._updates.popleft()
                self._update_taken.set()
                self._adopt(utterance, options, position_sample)
            elif segment is not None:
                return segment
            else:
                await self._audio.wait_for(next_end_sample)

    def _timeline(self, utterance: Utterance, segment: Segment, free_s: float) -> SegmentTimeline:
        """Return a segment's timeline: on the true clock where every segment is decided, else live.

        Args:
            free_s: when the work on the segment before was finished.
        """
        rate_hertz = self._options.audio_format.sample_rate_hz
        begun = partial(
            SegmentTimeline,
            segment=segment,
            utterance=utterance.index,
            utterance_start_sample=utterance.begin_sample,
            policy=utterance.policy.name,
        )
        if not self._options.merges_segments:
            now_s = self._now_s()
            return begun(
                grid_arrival_s=now_s,
                started_s=now_s,
                arrival_ms=segment.end_sample * 1000 / rate_hertz,
                previous_finished_ms=self._true_finished_ms,
            )
        origin_s = self._audio.arrivals.origin_s
        grid_arrival_s = self._audio.arrival_s(segment.grid_end_sample)
        arrival_s = self._audio.arrival_s(segment.end_sample)
        expected_s = origin_s + segment.grid_end_sample / rate_hertz
        return begun(
            grid_arrival_s=grid_arrival_s,
            # A free session that still starts late was not scheduled in time: its own work.
            started_s=max(free_s, arrival_s),
            arrival_lateness_ms=(grid_arrival_s - expected_s) * 1000,
            origin_s=origin_s,
            arrival_s=arrival_s,
        )

    async def _work_on(
        self, utterance: Utterance, segment: Segment, timeline: SegmentTimeline
    ) -> Endpoint | None:
        self._guards.noted.clear()
        replays_before = self._replay_count()
        self._observer.begin(timeline)
        timeline.encoding_s = self._now_s()
        encoded, endpoint = await self._encode(utterance, segment, timeline)
        timeline.encoded_s = self._now_s()
        timeline.endpoint = endpoint
        utterance.segment_index = segment.index
        self._decided_sample = max(self._decided_sample, segment.end_sample)
        words, tail, reading = await translate(
            utterance,
            encoded,
            timeline,
            self._options,
            self._decoder,
            self._guards,
            self._now_s,
            self._decided_sample,
            final=endpoint is not None,
        )
        if reading is None:
            utterance.is_in_sentence = False  # how its text goes on is not known
        end = None if endpoint is None else self._ended(utterance, encoded, endpoint)
        # All that the next segment depends on is known now, before the words leave.
        timeline.words = words
        self.totals.item_count += len(words)
        self.totals.word_count += sum(word.starts_word for word in words)
        if self._lag_ms is not None:
            self._lag_ms = lag_after(self._lag_ms, words, self._options)
        if end is None:
            self._adopt(utterance, self._asked, segment.end_sample)
        else:
            self._choose(self._asked)
            self.totals.utterance_count = utterance.index + 1
            self.totals.utterances_not_understood += end.not_understood is not None
            timeline.not_understood = end.not_understood is not None
        if words:
            snapshot = self._snapshot(utterance, timeline, end, _worked(timeline))
            await self._emit(WordsReleased(words, utterance.start_sample, snapshot))
        if timeline.committed_s is not None:
            timeline.released_s = self._now_s()
        if tail is not None and self._options.sends_interim_results:
            await self._show_tail(tail, utterance.index)
        if reading is not None:
            await reading.finish(utterance, timeline)
            timeline.decoded_s = self._now_s()
        timeline.guards = tuple(dict.fromkeys(self._guards.noted))
        self.totals.replays = self._replay_count()
        timeline.replay_count = self.totals.replays - replays_before
        self._true_finished_ms = timeline.finished_ms
        worked = _worked(timeline)
        self.totals.add_segment(worked)
        self._observer.end(timeline, worked)
        await self._emit(worked)
        if end is not None:
            await self._emit(replace(end, snapshot=self._snapshot(utterance, timeline, end)))
        return endpoint

    async def _encode(
        self, utterance: Utterance, segment: Segment, timeline: SegmentTimeline
    ) -> tuple[Encoded, Endpoint | None]:
        audio = self._audio.read(utterance.sent_sample, segment.end_sample)
        utterance.sent_sample = segment.end_sample
        start_sample, spoken_for_sample = utterance.start_sample, utterance.spoken_for_sample
        endpoint = self._endpointer.known_end(
            segment, start_sample, spoken_for_sample, loops=utterance.loops
        )
        if endpoint is not None:
            encoded = await self._encoder.encode(audio, endpoint.end_sample)
            timeline.encoder = encoded.timings
        else:
            encoded = await self._encoder.encode(audio)
            timeline.encoder = encoded.timings
            heard = encoded.evidence, start_sample, segment.end_sample, spoken_for_sample
            previous_end_sample = self._grid.boundary(utterance.segment_index)
            endpoint = self._endpointer.find_pause(
                *heard, previous_end_sample, in_sentence=utterance.is_in_sentence
            )
            limit_sample = self._endpointer.limit_sample(start_sample)
            next_end_sample = self._grid.boundary(segment.index + 1)
            if endpoint is None and limit_sample is not None and next_end_sample > limit_sample:
                endpoint = self._endpointer.cut(*heard)
            if endpoint is not None:
                encoded = await self._encoder.encode(b"", endpoint.end_sample)
                timeline.encoder += encoded.timings
        await self._audio.mark_worked(segment.end_sample)
        return encoded, endpoint

    async def _reset_encoder(self, utterance: Utterance) -> None:
        if utterance.needs_reset:
            await self._encoder.reset(utterance.index, utterance.start_sample)
            utterance.needs_reset = False

    def _ended(self, utterance: Utterance, encoded: Encoded, endpoint: Endpoint) -> UtteranceEnded:
        transcript = encoded.evidence.source_transcript
        return UtteranceEnded(
            utterance.index,
            utterance.begin_sample,
            endpoint.end_sample,
            endpoint.cause,
            transcript if self._options.sends_source_transcript else "",
            utterance.not_understood,
        )

    async def _show_tail(self, text: str, utterance: int) -> None:
        if text != self._tail:
            self._tail = text
            await self._emit(TailChanged(text, utterance))

    def _choose(self, asked: StreamOptions) -> None:
        """Use the options that the client asks for, adjusted to hold the lag."""
        self._asked = asked
        self._options = asked if self._lag_ms is None else options_at_lag(asked, self._lag_ms)

    def _adopt(self, utterance: Utterance, asked: StreamOptions, position_sample: int) -> None:
        """Switch to what the client asks for; the next segment ends after a position."""
        before = self._options
        self._choose(asked)
        options = self._options
        if options.policy != before.policy:
            utterance.switch_policy(options.policy.begin())
        waits = not utterance.segment_index
        if options.segment_ms != before.segment_ms or (
            waits and options.initial_wait_ms != before.initial_wait_ms
        ):
            wait_ms = options.initial_wait_ms if waits else 0
            self._grid = self._grid.moved(
                options.segment_ms, wait_ms, utterance.segment_index, position_sample
            )

    def _fresh_grid(self, start_sample: int) -> SegmentGrid:
        options = self._options
        rate_hertz = options.audio_format.sample_rate_hz
        return SegmentGrid(rate_hertz, options.segment_ms, options.initial_wait_ms, start_sample)

    def _utterance_after(self, utterance: Utterance, start_sample: int) -> Utterance:
        state = UtteranceState(utterance.index + 1, start_sample, start_sample)
        return Utterance(state, self._options.policy.begin())

    def _replay_count(self) -> int:
        """Return the session's replays, those between two segments included."""
        here = self._encoder.replay_count + self._decoder.replay_count
        return self._start.totals.replays + here

    def _snapshot(
        self,
        utterance: Utterance,
        timeline: SegmentTimeline,
        end: UtteranceEnded | None,
        untold: SegmentWorked | None = None,
    ) -> SessionSnapshot:
        """Return the session as it is after a segment of an utterance."""
        if end is not None:
            utterance = self._utterance_after(utterance, end.end_sample)
        self.totals.replays = self._replay_count()
        totals = replace(self.totals, guards_hit=dict(self._guards.hits))
        if untold is not None:
            totals.add_segment(untold)
        return SessionSnapshot(
            options=self._asked,
            utterance=utterance.snapshot(),
            grid=self._grid if utterance.segment_index else None,
            lag_ms=self._lag_ms,
            decided_sample=self._decided_sample,
            true_finished_ms=timeline.finished_ms,
            origin_s=self._audio.arrivals.origin_s if self._options.merges_segments else None,
            totals=totals,
            segment=untold,
            end=end if untold is not None else None,
        )


def _worked(timeline: SegmentTimeline) -> SegmentWorked:
    segment, tokens = timeline.segment, timeline.hypothesis_tokens
    return SegmentWorked(
        timeline.utterance,
        segment.index,
        segment.end_sample,
        timeline.computation_ms,
        timeline.encoder.queue_ms + timeline.decoder.queue_ms,
        segment.merged_count,
        len(timeline.words),
        tokens,
        timeline.prefix_token_count if tokens else 0,
        timeline.committed_token_count if tokens else 0,
        ends_utterance=timeline.endpoint is not None,
    )
