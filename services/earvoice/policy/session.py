"""One session: segments are encoded, decoded and decided, utterance after utterance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import DecoderBackend, Encoded, EncoderBackend
from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.end_finder import EndFinder
from earvoice.policy.endpoint import Endpoint
from earvoice.policy.event import Event, SegmentWorked, SessionTotals, UtteranceEnded
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.resume.snapshot import SessionSnapshot, first_snapshot
from earvoice.policy.segment_clock import SegmentClock
from earvoice.policy.segment_grid import Segment
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.session_state import SessionState, before_telling
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import HopTimings, SegmentTimeline, TrueTimeline
from earvoice.policy.translation import Translated, Translator
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
        resumed: the session to go on with, in place of the options; None for a new one.
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
        resumed: SessionSnapshot | None = None,
    ) -> None:
        start = resumed or first_snapshot(options)
        self._start = start
        self._state = SessionState(start)
        self._encoder = encoder
        self._backends = (encoder, decoder)
        self._audio = audio
        self._clock = SegmentClock(start.options, audio, arrivals, now_s)
        self._emit = emit
        self._now_s = now_s
        self._observer = observer or SegmentObserver()
        self._updates = UpdateQueue()
        self._grid = start.grid or self._state.fresh_grid(start.start_sample)
        self._ends = EndFinder(start.options)
        # Of a session that goes on nobody can say which tail its client shows.
        tail = None if resumed else ""
        self._translator = Translator(
            self._state.options, decoder, emit, now_s, self._state.guards, tail
        )

    @property
    def totals(self) -> SessionTotals:
        """The totals so far."""
        return self._state.totals

    async def run(self) -> SessionTotals:
        """Work until the audio has ended and everything has been released."""
        await self._tell_pending()
        utterance = self._state.restored_utterance(self._start)
        while await self._has_audio_from(utterance.start_sample):
            await self._reset_encoder(utterance)
            if not utterance.segment_index:
                self._grid = self._state.fresh_grid(utterance.begin_sample)
            end_sample = await self._run_utterance(utterance)
            utterance = self._state.utterance_after(utterance, end_sample)
        self.totals.audio_samples = self._audio.received_samples
        self.totals.guards_hit = dict(self._state.guards.hits)
        return self.totals

    async def update(self, options: StreamOptions) -> None:
        """Change the options from the first segment on that ends behind the audio received so far.

        Args:
            options: as before but for policy, attention, beam, segment duration and initial wait.
        """
        await self._updates.add(self._audio.received_samples, options)
        await self._audio.interrupt()

    @property
    def _replay_count(self) -> int:
        return sum(backend.replay_count for backend in self._backends)

    def _count_replays(self) -> None:
        """Count those between two segments, too."""
        self.totals.replay_count = self._start.totals.replay_count + self._replay_count

    async def _has_audio_from(self, sample: int) -> bool:
        while self._audio.received_samples <= sample and not self._audio.ended:
            await self._audio.wait_for(sample + 1)
        return self._audio.received_samples > sample

    async def _run_utterance(self, utterance: Utterance) -> int:
        """Work on an utterance to its end and return where the next begins."""
        while True:
            free_s = self._now_s()
            segment = await self._next_segment(utterance)
            record = self._clock.record(utterance, segment, free_s)
            endpoint = await self._work_on(utterance, segment, record)
            if endpoint is not None:
                self._audio.release_before(endpoint.end_sample)
                return endpoint.end_sample
            self._audio.release_before(utterance.start_sample)

    async def _next_segment(self, utterance: Utterance) -> Segment:
        while True:
            limit_sample = self._ends.limit_sample(utterance)
            next_end_sample = self._grid.next_end(utterance.segment_index, limit_sample)
            segment = self._grid.next_segment(
                utterance.segment_index,
                self._audio.received_samples,
                ended=self._audio.ended,
                merge=self._state.options.merges_segments,
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
        before = self._state.options
        options = self._choose(options)
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
        timeline = self._clock.timeline(segment, record, self._state.true_finished_ms)
        hits_before = self._state.guards.hits.copy()
        replays_before = self._replay_count
        self._observer.begin(record)
        record.encoding_s = self._now_s()
        encoded, endpoint = await self._encode(utterance, segment, timeline)
        record.encoded(encoded, endpoint, self._now_s())
        utterance.segment_index = segment.index
        self._state.decided_sample = max(self._state.decided_sample, segment.end_sample)
        end = self._ended(utterance, encoded, endpoint)

        def settle(translated: Translated, deciding: HopTimings) -> SessionSnapshot | None:
            self._settle(utterance, segment, translated, end)
            if not translated.items:
                return None
            worked = _worked(utterance, segment, timeline, translated, end, deciding)
            finished_ms = _finished_ms(timeline, deciding)
            return before_telling(self._snapshot(utterance, end), finished_ms, worked, end)

        translated = await self._translator.translate(
            utterance,
            encoded,
            timeline,
            self._state.decided_sample,
            record,
            settle,
            final=end is not None,
        )
        record.guards = tuple(self._state.guards.hits - hits_before)
        record.replay_count = self._replay_count - replays_before
        self._count_replays()
        worked = _worked(utterance, segment, timeline, translated, end)
        self._state.true_finished_ms = _finished_ms(timeline)
        self.totals.add_segment(worked)
        self._observer.end(record, worked)
        await self._emit(worked)
        if end is not None:
            await self._emit(replace(end, snapshot=self._snapshot(utterance, end)))
        return endpoint

    def _settle(
        self,
        utterance: Utterance,
        segment: Segment,
        translated: Translated,
        end: UtteranceEnded | None,
    ) -> None:
        """Note what a segment decided; all that the next one depends on is known then."""
        self._state.note_items(translated.items)
        if end is None:
            self._adopt(utterance, self._state.asked, segment.end_sample)
        else:
            self._choose(self._state.asked)
            self.totals.utterance_count = utterance.index + 1

    def _choose(self, asked: StreamOptions) -> StreamOptions:
        self._translator.options = self._state.choose(asked)
        return self._translator.options

    def _ended(
        self, utterance: Utterance, encoded: Encoded, endpoint: Endpoint | None
    ) -> UtteranceEnded | None:
        if endpoint is None:
            return None
        transcript = encoded.evidence.source_transcript
        return UtteranceEnded(
            utterance.index,
            utterance.begin_sample,
            endpoint.end_sample,
            endpoint.cause,
            transcript if self._state.options.sends_source_transcript else "",
        )

    def _snapshot(self, utterance: Utterance, end: UtteranceEnded | None) -> SessionSnapshot:
        """Return the session as it is after a segment of an utterance, if need be its last."""
        if end is not None:
            utterance = self._state.utterance_after(utterance, end.end_sample)
        self._count_replays()
        return self._state.snapshot(utterance, self._grid, self._clock.origin_s)

    async def _tell_pending(self) -> None:
        """Tell what a session that goes on had still to tell."""
        if self._start.segment is not None:
            await self._emit(self._start.segment)
        if self._start.end is not None:
            await self._emit(replace(self._start.end, snapshot=self._start.told))

    async def _reset_encoder(self, utterance: Utterance) -> None:
        if utterance.needs_reset:
            await self._encoder.reset(utterance.index, utterance.start_sample)
            utterance.needs_reset = False

    async def _encode(
        self, utterance: Utterance, segment: Segment, timeline: SegmentTimeline
    ) -> tuple[Encoded, Endpoint | None]:
        """Send the segment's audio; finish the utterance if it ends here."""
        await self._reset_encoder(utterance)
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


def _worked(
    utterance: Utterance,
    segment: Segment,
    timeline: SegmentTimeline,
    translated: Translated,
    end: UtteranceEnded | None,
    deciding: HopTimings = HopTimings(),  # noqa: B008 - frozen
) -> SegmentWorked:
    """Return what a segment came to; the generation that decides runs on as `deciding`."""
    return SegmentWorked(
        utterance.index,
        segment.index,
        segment.end_sample,
        timeline.computation_ms + deciding.compute_ms,
        timeline.queue_ms + deciding.queue_ms,
        segment.merged_count,
        len(translated.items),
        translated.hypothesis,
        ends_utterance=end is not None,
    )


def _finished_ms(timeline: SegmentTimeline, deciding: HopTimings | None = None) -> float:
    """Return when a segment is finished, on the clock of a `TrueTimeline`; 0 on any other."""
    if not isinstance(timeline, TrueTimeline):
        return 0.0
    return timeline.finished_ms + (deciding.compute_ms if deciding else 0.0)
