"""One StreamingTranslate call: audio goes out in a task, events come in."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.errors import TranslationError
from earvoice.client.event import Committed, Started, TranslationEvent
from earvoice.client.event_reader import EventReader
from earvoice.client.framing import FrameCutter
from earvoice.client.options import TranslationUpdate
from earvoice.client.reception_clock import ReceptionClock
from earvoice.client.rpc_failure import translate_failure
from earvoice.client.session_config import write_config, write_update

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator

    from earvoice.client.options import TranslationOptions

Call = grpc.aio.StreamStreamCall[api.StreamingTranslateRequest, api.StreamingTranslateResponse]


class TranslationStream:
    """One session.

    Args:
        call: the open call; it is ended by ``events``.
        audio: the session's bytes, and updates in their place; asked for only after the session
            has started, so that a refused session never opens a microphone.
        options: what was chosen.
        now_s: a monotonic clock in seconds.
    """

    def __init__(
        self,
        call: Call,
        audio: AsyncIterable[bytes | TranslationUpdate],
        options: TranslationOptions,
        now_s: Callable[[], float],
    ) -> None:
        self._call = call
        self._audio = audio
        self._options = options
        self._clock = ReceptionClock(options.audio, paced=options.paced, now_s=now_s)
        self._reader = EventReader(options.audio, self._clock.read_ms)
        self._started = asyncio.Event()
        self._updates: deque[TranslationUpdate] = deque()
        self._acknowledged_samples = 0
        self._resume_token = b""

    def update(self, update: TranslationUpdate) -> None:
        """Change the session: it is sent before the next audio.

        So it holds from the first segment on that ends after the audio sent until now. A caller
        who must know the place to the sample puts the update among the audio. One that comes
        after the last audio holds for the final segment only.
        """
        self._updates.append(update)

    async def events(self) -> AsyncGenerator[TranslationEvent, None]:
        """Yield what the server tells until its summary.

        Raises:
            TranslationError: the call failed, or the server broke the protocol.
            Exception: what the audio raised, as it is.
        """
        sender = asyncio.create_task(self._send())
        try:
            while isinstance(response := await self._call.read(), api.StreamingTranslateResponse):
                event = self._reader.read(response)
                self._note(event)
                yield event
            self._reader.check_end()
        except grpc.aio.AioRpcError as failure:
            raise self._with_position(translate_failure(failure)) from failure
        except TranslationError as error:
            raise self._with_position(error) from None
        except asyncio.CancelledError:
            # A failing audio source ends the call, which grpc reports as a cancellation.
            self._raise_failure_of_audio(sender)
            raise
        finally:
            sender.cancel()
            self._call.cancel()
            await asyncio.wait({sender})

    async def _send(self) -> None:
        try:
            await self._call.write(
                api.StreamingTranslateRequest(config=write_config(self._options))
            )
            await self._started.wait()
            cutter = FrameCutter(self._options.audio)
            async for chunk in self._audio:
                await self._send_updates()
                if isinstance(chunk, TranslationUpdate):
                    await self._send_update(chunk)
                else:
                    await self._send_audio(cutter.add(chunk))
            await self._send_updates()
            cutter.check_end()
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call is over; the reading side has its status.
            return
        except Exception:
            self._call.cancel()
            raise

    async def _send_audio(self, messages: Iterator[bytes]) -> None:
        for message in messages:
            self._clock.note_sending(len(message))
            await self._call.write(api.StreamingTranslateRequest(audio=message))

    async def _send_updates(self) -> None:
        while self._updates:
            await self._send_update(self._updates.popleft())

    async def _send_update(self, update: TranslationUpdate) -> None:
        await self._call.write(api.StreamingTranslateRequest(update=write_update(update)))

    def _note(self, event: TranslationEvent) -> None:
        match event:
            case Started():
                self._started.set()
            case Committed():
                self._acknowledged_samples = event.acknowledged_samples
                self._resume_token = event.resume_token

    def _with_position(self, error: TranslationError) -> TranslationError:
        error.session_started = self._started.is_set()
        error.acknowledged_samples = self._acknowledged_samples
        error.resume_token = self._resume_token
        return error

    @staticmethod
    def _raise_failure_of_audio(sender: asyncio.Task[None]) -> None:
        current: asyncio.Task[Any] | None = asyncio.current_task()
        if current is not None and current.cancelling():
            return
        if sender.done() and not sender.cancelled() and (failure := sender.exception()):
            raise failure from None
