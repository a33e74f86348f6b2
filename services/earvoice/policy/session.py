"""One session: segments are encoded, decoded and decided, utterance after utterance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import DecoderBackend, Encoded, EncoderBackend
from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.endpoint import EndCause, Endpoint, Endpointer
from earvoice.policy.event import Event, SegmentWorked, SessionTotals, UtteranceEnded
from earvoice.policy.segment_grid import Segment, SegmentGrid
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import LiveTimeline, SegmentTimeline, TrueTimeline
from earvoice.policy.translation import Translator
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
    ) -> None:
        rate = options.audio_format.sample_rate_hertz
        endpointing = options.endpointing
        limit = endpointing.max_utterance_ms * rate // 1000 if endpointing else None
        self._options = options
        self._rate_hertz = rate
        self._encoder = encoder
        self._audio = audio
        self._arrivals = arrivals
        self._emit = emit
        self._now_s = now_s
        self._grid = SegmentGrid(rate, options.segment_ms, options.initial_wait_ms, limit)
        self._endpointer = Endpointer(rate, endpointing.pause_ms) if endpointing else None
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

    async def _has_audio_from(self, sample: int) -> bool:
        await self._audio.wait_for(sample + 1)
        return self._audio.received_samples > sample

    async def _run_utterance(self, utterance: Utterance) -> int:
        """Work on an utterance to its end and return where the next begins."""
        while True:
            segment = await self._next_segment(utterance)
            endpoint = await self._work_on(utterance, segment)
            if endpoint is not None:
                self._audio.release_before(endpoint.end_sample)
                return endpoint.end_sample

    async def _next_segment(self, utterance: Utterance) -> Segment:
        while True:
            segment = self._grid.next_segment(
                utterance.start_sample,
                utterance.segment_index,
                self._audio.received_samples,
                ended=self._audio.ended,
                merge=self._options.merges_segments,
            )
            if segment is not None:
                return segment
            boundary = self._grid.boundary(utterance.segment_index + 1)
            await self._audio.wait_for(utterance.start_sample + boundary)

    async def _work_on(self, utterance: Utterance, segment: Segment) -> Endpoint | None:
        """Encode, decode and decide one segment; return the utterance's end if this was it."""
        timeline = self._timeline(segment)
        encoded, endpoint = await self._encode(utterance, segment, timeline)
        utterance.segment_index = segment.index
        self._decided_sample = max(self._decided_sample, segment.end_sample)
        items = await self._translator.translate(
            utterance, encoded, timeline, self._decided_sample, final=endpoint is not None
        )
        self.totals.add_items(items)
        if isinstance(timeline, TrueTimeline):
            self._true_finished_ms = timeline.finished_ms
        worked = SegmentWorked(
            utterance.index,
            segment.index,
            segment.end_sample,
            timeline.computation_ms,
            timeline.queue_ms,
            segment.merged_count,
            len(items),
        )
        self.totals.add_segment(worked)
        await self._emit(worked)
        if endpoint is not None:
            transcript = encoded.evidence.source_transcript
            await self._emit(
                UtteranceEnded(
                    utterance.index,
                    utterance.start_sample,
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
        audio = self._audio.read(utterance.sent_sample, segment.end_sample)
        utterance.sent_sample = segment.end_sample
        if segment.final:
            encoded = await self._encoder.finish(audio, segment.end_sample)
            endpoint: Endpoint | None = Endpoint(segment.end_sample, EndCause.END_OF_AUDIO)
        else:
            encoded = await self._encoder.encode(audio)
            endpoint = self._endpoint(utterance, segment, encoded)
        timeline.encoder = encoded.timings
        if endpoint is not None and not segment.final:
            encoded = await self._encoder.finish(b"", endpoint.end_sample)
            timeline.encoder += encoded.timings
        await self._audio.mark_worked(segment.end_sample)
        return encoded, endpoint

    def _endpoint(
        self, utterance: Utterance, segment: Segment, encoded: Encoded
    ) -> Endpoint | None:
        if self._endpointer is None:
            return None
        pause = self._endpointer.find_pause(
            encoded.evidence,
            utterance.start_sample,
            segment.end_sample,
            utterance.spoken_for_sample,
        )
        if pause is not None or not self._grid.is_last(segment.index):
            return pause
        return self._endpointer.cut(
            encoded.evidence,
            utterance.start_sample,
            segment.end_sample,
            utterance.spoken_for_sample,
        )

    def _timeline(self, segment: Segment) -> SegmentTimeline:
        if not self._options.merges_segments:
            arrival_ms = segment.end_sample * 1000 / self._rate_hertz
            return TrueTimeline(arrival_ms, self._true_finished_ms)
        return LiveTimeline(
            self._arrivals.origin_s,
            self._audio.arrival_s(segment.grid_end_sample),
            self._audio.arrival_s(segment.end_sample),
            self._now_s(),
        )
