"""One client's stream: reads its messages, runs its session, hands out its events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policies.registry import Policies
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import DecoderBackend, EncoderBackend
from earvoice.policy.event import Event, ReplicaLeaving, SessionSnapshot, SessionTotals, TailChanged
from earvoice.policy.session import SegmentObserver, TranslationSession
from earvoice.policy.settings import PolicySettings
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import updated_options
from earvoice.runtime.errors import (
    EarvoiceError,
    InvalidFieldError,
    OutOfOrderError,
    SessionTooLongError,
)

CAPACITY = 64

Request = public_pb.StreamingTranslateRequest


async def read_config(requests: AsyncIterator[Request]) -> public_pb.StreamingConfig:
    request = await anext(requests, None)
    if request is None:
        raise OutOfOrderError("the stream ended before its config")
    if request.WhichOneof("message") != "config":
        raise OutOfOrderError(
            f"the first message is {request.WhichOneof('message') or 'empty'}; allowed: config"
        )
    return request.config


async def read_messages(
    requests: AsyncIterator[Request],
    start: SessionSnapshot,
    model: types_pb2.ModelDescription,
    policies: Policies,
) -> AsyncIterator[bytes | StreamOptions]:
    """Yield the content of each message after the config: audio, or the options after an update.

    Updates that lie before `start.decided_sample` are in the session's options already.
    """
    options, position_sample = start.options, start.start_sample
    frame_bytes = options.audio_format.frame_bytes
    async for request in requests:
        match request.WhichOneof("message"):
            case "audio":
                audio = request.audio
                position_sample += len(audio) // frame_bytes
                yield audio
            case "update" if position_sample < start.decided_sample:
                continue
            case "update":
                options = updated_options(options, request.update, model, policies)
                yield options
            case "config":
                raise OutOfOrderError("a second config came; allowed: audio, update")
            case _:
                raise InvalidFieldError("message", "nothing", "audio, update")


class Outbox:
    """Events between a session and its client: bounded, in order, only the newest tail."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._changed = asyncio.Condition()
        self._is_closed = False
        self._error: Exception | None = None

    async def put(self, event: Event) -> None:
        """Add an event; waits while the client is slow. A newer tail replaces a waiting one.

        Totals close the outbox. Does nothing once it is closed: what a failed session still finds
        is not sent.
        """
        async with self._changed:
            if isinstance(event, TailChanged):
                kept = [waiting for waiting in self._events if not isinstance(waiting, TailChanged)]
                self._events = deque(kept)
            while not self._is_closed and len(self._events) >= CAPACITY:
                await self._changed.wait()
            if self._is_closed:
                return
            self._events.append(event)
            self._is_closed = isinstance(event, SessionTotals)
            self._changed.notify_all()

    async def announce(self, event: Event) -> None:
        """Add an event without waiting for a slow client; does nothing if the outbox is closed."""
        async with self._changed:
            if not self._is_closed:
                self._events.append(event)
                self._changed.notify_all()

    async def close(self, error: Exception | None = None) -> None:
        async with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._error = error
            self._changed.notify_all()

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events; after the last one raise the error that closed it, if any."""
        while True:
            async with self._changed:
                while not (self._events or self._is_closed):
                    await self._changed.wait()
                if not self._events:
                    if self._error is not None:
                        raise self._error
                    return
                event = self._events.popleft()
                self._changed.notify_all()
            yield event


class TranslationStream:
    """Joins a client's audio, a session and an outbox.

    Args:
        resumed: the session to go on with; None for a new one.
    """

    def __init__(
        self,
        options: StreamOptions,
        settings: PolicySettings,
        encoder: EncoderBackend,
        decoder: DecoderBackend,
        observer: SegmentObserver | None = None,
        resumed: SessionSnapshot | None = None,
    ) -> None:
        start = resumed or SessionSnapshot(options)
        self._start = start
        audio_format = options.audio_format
        rate_hertz = audio_format.sample_rate_hz
        # A resumed session may have as much again: else none could go on after its limit.
        self._max_samples = start.start_sample + settings.max_session_ms * rate_hertz // 1000
        limit_samples = min(
            settings.max_buffered_audio_ms * rate_hertz // 1000,
            settings.max_buffered_audio_bytes // audio_format.frame_bytes,
        )
        self._audio = AudioBuffer(audio_format, limit_samples, start.start_sample)
        if start.origin_s is not None:
            self._audio.arrivals.assume(start.origin_s, time.perf_counter())
        self._outbox = Outbox()
        self._session = TranslationSession(
            options,
            encoder,
            decoder,
            self._audio,
            self._outbox.put,
            time.perf_counter,
            observer,
            resumed,
        )

    @property
    def totals(self) -> SessionTotals:
        """What this stream has received and done so far, without the session it has resumed."""
        added = self._session.totals.since(self._start.totals)
        received_samples = self._audio.received_samples - self._start.start_sample
        return replace(added, audio_samples=received_samples)

    async def leave(self, grace_s: float) -> None:
        await self._outbox.announce(ReplicaLeaving(grace_s))

    async def end(self, error: EarvoiceError) -> None:
        """End the session with an error, after the words already released."""
        await self._outbox.close(error)

    async def events(
        self, messages: AsyncIterator[bytes | StreamOptions]
    ) -> AsyncGenerator[Event, None]:
        """Yield what happens, the totals last."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._read(messages)),
                group.create_task(self._run_session()),
            ]
            try:
                async for event in self._outbox.events():
                    yield event
            except GeneratorExit:
                # The group would wrap it, and nobody would recognise it.
                return
            finally:
                for task in tasks:
                    task.cancel()

    async def _run_session(self) -> None:
        """Send an error through the outbox, after the words already released."""
        try:
            await self._session.run()
        except Exception as error:  # noqa: BLE001 - handed on, not swallowed
            await self._outbox.close(error)

    async def _read(self, messages: AsyncIterator[bytes | StreamOptions]) -> None:
        """Hand on what the client sends; the session meets an error where it lies in the audio."""
        try:
            await self._take(messages)
        except Exception as error:  # noqa: BLE001 - handed on, not swallowed
            await self._audio.fail(error)

    async def _take(self, messages: AsyncIterator[bytes | StreamOptions]) -> None:
        audio = self._audio
        async for message in messages:
            if isinstance(message, StreamOptions):
                await self._session.update(message)
                continue
            await audio.append(message, time.perf_counter())
            if audio.received_samples > self._max_samples:
                raise SessionTooLongError(
                    f"the session has {audio.received_samples} samples; "
                    f"allowed: {self._max_samples}"
                )
        # A resumed session must be sent again the audio that it had decided.
        if audio.received_samples < self._start.decided_sample:
            raise OutOfOrderError(
                f"the audio ends at sample {audio.received_samples}; this session has decided it "
                f"up to {self._start.decided_sample} already: all of it from next_sample on must "
                "be sent again"
            )
        await audio.end()
