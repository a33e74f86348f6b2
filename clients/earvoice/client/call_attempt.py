"""One call of a session: audio goes out in a task, events come in, and both are timed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.audio_log import AudioLog
from earvoice.client.errors import ServerUnavailableError, translate_failure
from earvoice.client.event import EventReader, SegmentDone, Started, TranslationEvent
from earvoice.client.options import (
    TranslationOptions,
    TranslationUpdate,
    write_config,
    write_update,
)
from earvoice.runtime.audio_format import AudioFormat

Call = grpc.aio.StreamStreamCall[api.StreamingTranslateRequest, api.StreamingTranslateResponse]


LONGEST_SILENCE_S = 60.0
"""A server that only tells its health is slow, or somebody else answers for it."""


class ReceptionClock:
    """The client's wall clock of one stream: how long after the first sample something arrived.

    Args:
        paced: a chunk is sent when its last sample exists, so that the first sample existed one
            chunk before the first sending; False: time zero is the first sending.
    """

    def __init__(
        self,
        audio: AudioFormat,
        *,
        paced: bool,
        now_s: Callable[[], float],
        start_sample: int = 0,
    ) -> None:
        self._audio = audio
        self._start_ms = audio.position_ms(start_sample)
        self._paced = paced
        self._now_s = now_s
        self._origin_s: float | None = None

    def note_sending(self, byte_count: int) -> None:
        """Note that a message of so many bytes is about to be sent; the first one counts."""
        if self._origin_s is None:
            existed_ms = self._audio.duration_ms(byte_count) if self._paced else 0.0
            self._origin_s = self._now_s() - (self._start_ms + existed_ms) / 1000

    def read_ms(self) -> float:
        """Milliseconds since the first sample; 0 as long as nothing was sent."""
        return 0.0 if self._origin_s is None else 1000 * (self._now_s() - self._origin_s)


class StallWatch:
    """Notices a server that has stopped answering although the connection seems to stand.

    Every segment is answered; one that is not is missed.

    Args:
        timeout_s: seconds that an answer may be late before the server is asked for its health.
    """

    def __init__(
        self,
        timeout_s: float,
        now_s: Callable[[], float],
        answers: Callable[[], Awaitable[bool]],
    ) -> None:
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._answers = answers
        self._segment_ms = 0
        self._done_ms = 0.0
        self._sent_ms = 0.0
        # Due since then; None while nothing is. The session's start is due from the beginning.
        self._due_s: float | None = now_s()
        self._asked_s = now_s()

    @property
    def interval_s(self) -> float:
        return self._timeout_s / 5

    def note_sent(self, end_ms: float) -> None:
        """Audio has been sent up to a position; infinite when it has ended: all is due then."""
        self._sent_ms = end_ms
        if self._due_s is None and self._is_due():
            self._due_s = self._asked_s = self._now_s()

    def note_event(self, event: TranslationEvent) -> None:
        match event:
            case Started():
                waits_ms = (event.options.segment_ms or 0) + (event.options.initial_wait_ms or 0)
                # A held lag may make segments as long as they may be.
                self._segment_ms = 10_000 if event.options.target_lag_ms else waits_ms
                self._done_ms = event.options.audio.position_ms(event.next_sample)
            case SegmentDone():
                self._done_ms = event.end_ms
        self._due_s = self._now_s() if self._is_due() else None
        self._asked_s = self._now_s()

    def note_longer_segments(self, segment_ms: int) -> None:
        self._segment_ms = max(self._segment_ms, segment_ms)

    def _is_due(self) -> bool:
        return self._sent_ms >= self._done_ms + self._segment_ms

    async def is_stalled(self) -> bool:
        """Say whether an answer is due and the server does not even tell its health."""
        now_s = self._now_s()
        if self._due_s is None or now_s - self._asked_s < self._timeout_s:
            return False
        if now_s - self._due_s >= LONGEST_SILENCE_S:
            return True
        self._asked_s = now_s
        return not await self._answers()


class CallAttempt:
    """One open call, which ``events`` ends."""

    def __init__(
        self,
        call: Call,
        log: AudioLog,
        reader: EventReader,
        clock: ReceptionClock,
        watch: StallWatch,
    ) -> None:
        self._call = call
        self._log = log
        self._reader = reader
        self._clock = clock
        self._watch = watch
        self._next_sample = asyncio.get_running_loop().create_future()

    async def events(
        self, options: TranslationOptions, resume_token: bytes, pumping: asyncio.Future[None]
    ) -> AsyncGenerator[TranslationEvent | None, None]:
        """Yield what the server tells until its summary; None now and then while it is silent.

        The resume token is of the session that goes on, empty for a new one; ``pumping`` fails
        with what the source of the audio raises.

        Raises:
            TranslationError: the call failed, or the server broke the protocol or does not answer.
            Exception: what the audio raised, as it is.
        """
        config = write_config(options, resume_token)
        sender = asyncio.create_task(self._send(config, options))
        reading: asyncio.Future[Any] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(self._call.read())
                await self._wait(reading, pumping, sender)
                if not reading.done():
                    await self._check_stall()
                    yield None
                    continue
                response = reading.result()
                reading = None
                if not isinstance(response, api.StreamingTranslateResponse):
                    break
                yield self._read(response)
            self._reader.check_end()
        except grpc.aio.AioRpcError as failure:
            raise translate_failure(failure) from failure
        finally:
            await self._end(sender, reading)

    async def _wait(self, reading: asyncio.Future[Any], *failing: asyncio.Future[None]) -> None:
        working = {future for future in failing if not future.done()}
        await asyncio.wait(
            {reading, *working},
            timeout=self._watch.interval_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for future in failing:
            if future.done():
                future.result()

    def _read(self, response: api.StreamingTranslateResponse) -> TranslationEvent:
        event = self._reader.read(response)
        self._watch.note_event(event)
        if isinstance(event, Started):
            self._next_sample.set_result(event.next_sample)
        return event

    async def _check_stall(self) -> None:
        if await self._watch.is_stalled():
            raise ServerUnavailableError("the server has stopped answering", code="UNAVAILABLE")

    async def _send(self, config: api.StreamingConfig, options: TranslationOptions) -> None:
        try:
            await self._call.write(api.StreamingTranslateRequest(config=config))
            position = await self._next_sample
            async for content in self._log.read(position):
                if isinstance(content, bytes):
                    position += len(content) // options.audio.frame_bytes
                    self._clock.note_sending(len(content))
                    self._watch.note_sent(options.audio.position_ms(position))
                    await self._call.write(api.StreamingTranslateRequest(audio=content))
                else:
                    await self._send_update(content)
            await self._call.done_writing()
            self._watch.note_sent(float("inf"))
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            # The call is over; the reading side has its status.
            return

    async def _send_update(self, update: TranslationUpdate) -> None:
        if update.segment_ms is not None:
            self._watch.note_longer_segments(update.segment_ms)
        await self._call.write(api.StreamingTranslateRequest(update=write_update(update)))

    async def _end(self, sender: asyncio.Future[Any], reading: asyncio.Future[Any] | None) -> None:
        waiting = {sender} if reading is None else {sender, reading}
        # Tasks are cancelled themselves: a write that waits for its connection does not hear of it
        # when the call is.
        for task in waiting:
            task.cancel()
        self._call.cancel()
        await asyncio.wait(waiting)
        await self._log.stop_reading()
        for ended in waiting:
            # Looked at, so that what ends with the call is not reported as lost.
            if not ended.cancelled():
                ended.exception()
