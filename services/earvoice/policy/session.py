"""One session: segments are encoded, decoded and decided, utterance after utterance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import DecoderBackend, Encoded, EncoderBackend
from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.end_finder import EndFinder
from earvoice.policy.endpoint import Endpoint
from earvoice.policy.event import Event, SegmentWorked, SessionTotals, UtteranceEnded
from earvoice.policy.lag_control import LagControl
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.segment_grid import Segment, SegmentGrid
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import LiveTimeline, SegmentTimeline, TrueTimeline
from earvoice.policy.translation import Translator
from earvoice.policy.update_queue import UpdateQueue
from earvoice.policy.utterance import Utterance

Emit = Callable[[Event], Awaitable[None]]


class TranslationSession:
    """Drives the loop of one stream.

    Args:
        options: what the stream asked for.
        encoder: an open encoder session.
        decoder: an open decoder session.
        audio: filled by whoever reads the client.
        arrivals: told of every message by the same.
        emit: sends an event to the client; waits while the client is slow.
        now_s: monotonic clock.
        observer: is told of every segment.
    """

    def __init__(
        self,
        options: StreamOptions,
        encoder: EncoderBackend,
        decoder: DecoderBackend,
        audio: AudioBuffer,
        arrivals: ArrivalClock,
        emit: Emit,
        now_s: Callable[[], float],
        observer: SegmentObserver | None = None,
    ) -> None:
        rate = options.audio_format.sample_rate_hertz
        self._lag = LagControl(options.target_lag_ms) if options.target_lag_ms else None
        options = self._lag.adjusted(options) if self._lag else options
        self._options = options
        self._rate_hertz = rate
        self._encoder = encoder
        self._audio = audio
        self._arrivals = arrivals
        self._emit = emit
        self._now_s = now_s
        self._observer = observer or SegmentObserver()
        self._updates = UpdateQueue()
        self._grid = SegmentGrid(rate, options.segment_ms, options.initial_wait_ms)
        self._ends = EndFinder(options)
        self._translator = Translator(options, decoder, emit, now_s)
        self._true_finished_ms = 0.0
        # An utterance may begin before the end of the last one's audio, which stays received.
        self._decided_sample = 0
        self.totals = SessionTotals()

    async def run(self) -> SessionTotals:
        """Work until the audio has ended and everything has been released."""
        start_sample, index = 0, 0
        while await self._has_audio_from(start_sample):
            if index:
                await self._encoder.reset(index, start_sample)
            utterance = Utterance(index, start_sample, make_policy(self._options.policy))
            start_sample = await self._run_utterance(utterance)
            index += 1
            self.totals.utterance_count = index
        self.totals.audio_samples = self._audio.received_samples
        self.totals.guards_hit = dict(self._translator.guards.hits)
        return self.totals

    async def update(self, options: StreamOptions) -> None:
        """Change the options from the first segment on that ends behind the audio received so far.

        Args:
            options: as before but for policy, attention, beam, segment duration and initial wait.
        """
        await self._updates.add(self._audio.received_samples, options)
        await self._audio.interrupt()

    async def _has_audio_from(self, sample: int) -> bool:
        while self._audio.received_samples <= sample and not self._audio.ended:
            await self._audio.wait_for(sample + 1)
        return self._audio.received_samples > sample

    async def _run_utterance(self, utterance: Utterance) -> int:
        """Work on an utterance to its end and return where the next begins."""
        self._grid = SegmentGrid(
            self._rate_hertz,
            self._options.segment_ms,
            self._options.initial_wait_ms,
            utterance.begin_sample,
        )
        while True:
            free_s = self._now_s()
            segment = await self._next_segment(utterance)
            record = self._record(utterance, segment, free_s)
            endpoint = await self._work_on(utterance, segment, record)
            if endpoint is not None:
                self._audio.release_before(endpoint.end_sample)
                return endpoint.end_sample
            self._audio.release_before(utterance.start_sample)
            self._adopt(utterance, self._options, segment.end_sample)

    async def _next_segment(self, utterance: Utterance) -> Segment:
        while True:
            limit_sample = self._ends.limit_sample(utterance)
            next_end_sample = self._grid.next_end(utterance.segment_index, limit_sample)
            segment = self._grid.next_segment(
                utterance.segment_index,
                self._audio.received_samples,
                ended=self._audio.ended,
                merge=self._options.merges_segments,
                limit_sample=limit_sample,
            )
            # A final segment ends before its boundary, a merged one behind it.
            reach_sample = max(next_end_sample, segment.end_sample if segment else 0)
            update = self._updates.take_before(reach_sample)
            if update is not None:
                position_sample, options = update
                self._adopt(utterance, options, position_sample)
            elif segment is not None:
                return segment
            else:
                await self._audio.wait_for(next_end_sample)

    def _adopt(self, utterance: Utterance, options: StreamOptions, position_sample: int) -> None:
        """Go on with other options; the next segment ends behind a position."""
        if self._lag is not None:
            options = self._lag.adjusted(options)
        before, self._options = self._options, options
        self._translator.options = options
        if options.policy != before.policy:
            utterance.switch_policy(make_policy(options.policy))
        waits = not utterance.segment_index
        if options.segment_ms != before.segment_ms or (
            waits and options.initial_wait_ms != before.initial_wait_ms
        ):
            wait_ms = options.initial_wait_ms if waits else 0
            self._grid = self._grid.moved(
                options.segment_ms, wait_ms, utterance.segment_index, position_sample
            )

    async def _work_on(
        self, utterance: Utterance, segment: Segment, record: SegmentRecord
    ) -> Endpoint | None:
        """Encode, decode and decide one segment; return the utterance's end if this was it."""
        timeline = self._timeline(segment, record)
        hits_before = self._translator.guards.hits.copy()
        self._observer.begin(record)
        record.encoding_s = self._now_s()
        encoded, endpoint = await self._encode(utterance, segment, timeline)
        record.encoded(encoded, endpoint, self._now_s())
        utterance.segment_index = segment.index
        self._decided_sample = max(self._decided_sample, segment.end_sample)
        translated = await self._translator.translate(
            utterance, encoded, timeline, self._decided_sample, record, final=endpoint is not None
        )
        record.guards = tuple(self._translator.guards.hits - hits_before)
        self.totals.add_items(translated.items)
        if self._lag is not None:
            self._lag.note(translated.items, self._options)
        if isinstance(timeline, TrueTimeline):
            self._true_finished_ms = timeline.finished_ms
        worked = SegmentWorked(
            utterance.index,
            segment.index,
            segment.end_sample,
            timeline.computation_ms,
            timeline.queue_ms,
            segment.merged_count,
            len(translated.items),
            translated.hypothesis,
            ends_utterance=endpoint is not None,
        )
        self.totals.add_segment(worked)
        self._observer.end(record, worked)
        await self._emit(worked)
        if endpoint is not None:
            transcript = encoded.evidence.source_transcript
            await self._emit(
                UtteranceEnded(
                    utterance.index,
                    utterance.begin_sample,
                    endpoint.end_sample,
                    endpoint.cause,
                    transcript if self._options.sends_source_transcript else "",
                )
            )
        return endpoint

    async def _encode(
        self, utterance: Utterance, segment: Segment, timeline: SegmentTimeline
    ) -> tuple[Encoded, Endpoint | None]:
        """Send the segment's audio; finish the utterance if it ends here."""
        if utterance.needs_reset:
            await self._encoder.reset(utterance.index, utterance.start_sample)
            utterance.needs_reset = False
        audio = self._audio.read(utterance.sent_sample, segment.end_sample)
        utterance.sent_sample = segment.end_sample
        endpoint = self._ends.known_end(utterance, segment)
        if endpoint is not None:
            encoded = await self._encoder.finish(audio, endpoint.end_sample)
            timeline.encoder = encoded.timings
        else:
            encoded = await self._encoder.encode(audio)
            timeline.encoder = encoded.timings
            limit_sample = self._ends.limit_sample(utterance)
            endpoint = self._ends.heard_end(
                utterance,
                segment,
                encoded.evidence,
                is_last=self._grid.is_last(segment.index, limit_sample),
            )
            if endpoint is not None:
                encoded = await self._encoder.finish(b"", endpoint.end_sample)
                timeline.encoder += encoded.timings
        await self._audio.mark_worked(segment.end_sample)
        return encoded, endpoint

    def _record(self, utterance: Utterance, segment: Segment, free_s: float) -> SegmentRecord:
        """Return a segment's empty record.

        Args:
            utterance: that it belongs to.
            segment: worked on next.
            free_s: since when nothing of the segment before was left to do.
        """
        if not self._options.merges_segments:
            now_s = self._now_s()
            return SegmentRecord(
                utterance.index,
                utterance.begin_sample,
                utterance.policy.name,
                segment,
                now_s,
                now_s,
                0.0,
            )
        grid_arrival_s = self._audio.arrival_s(segment.grid_end_sample)
        expected_s = self._arrivals.origin_s + segment.grid_end_sample / self._rate_hertz
        return SegmentRecord(
            utterance.index,
            utterance.begin_sample,
            utterance.policy.name,
            segment,
            grid_arrival_s,
            # A session that was free and still came late had no turn: that is its own work.
            max(free_s, self._audio.arrival_s(segment.end_sample)),
            (grid_arrival_s - expected_s) * 1000,
        )

    def _timeline(self, segment: Segment, record: SegmentRecord) -> SegmentTimeline:
        if not self._options.merges_segments:
            arrival_ms = segment.end_sample * 1000 / self._rate_hertz
            return TrueTimeline(arrival_ms, self._true_finished_ms, segment.index)
        return LiveTimeline(
            self._arrivals.origin_s,
            record.grid_arrival_s,
            self._audio.arrival_s(segment.end_sample),
            record.started_s,
            segment.index,
        )
