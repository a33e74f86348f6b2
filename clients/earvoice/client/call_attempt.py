"""One call of a session: audio goes out in a task, events come in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.errors import ServerUnavailableError
from earvoice.client.event import Started, TranslationEvent
from earvoice.client.rpc_failure import translate_failure
from earvoice.client.session_config import write_config, write_update

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from earvoice.client.audio_log import AudioLog
    from earvoice.client.event_reader import EventReader
    from earvoice.client.options import TranslationOptions, TranslationUpdate
    from earvoice.client.reception_clock import ReceptionClock
    from earvoice.client.stall_watch import StallWatch

Call = grpc.aio.StreamStreamCall[api.StreamingTranslateRequest, api.StreamingTranslateResponse]


class CallAttempt:
    """One call.

    Args:
        call: open; it is ended by ``events``.
        log: what is to be sent.
        reader: of the responses.
        clock: told of what is sent.
        watch: told of everything.
    """

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
        self, options: TranslationOptions, resume_token: bytes, failing: asyncio.Future[None]
    ) -> AsyncGenerator[TranslationEvent | None, None]:
        """Yield what the server tells until its summary; None now and then while it is silent.

        Args:
            options: what was chosen.
            resume_token: of the session that goes on; empty for a new one.
            failing: gets what the source of the audio raises.

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
                await self._wait(reading, failing, sender)
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
        """Wait for a response; raise what has failed on our side."""
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
