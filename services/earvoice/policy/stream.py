"""One client's stream: reads its audio, runs its session, hands out its events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator

from earvoice.policy.arrival_clock import ArrivalClock
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import DecoderBackend, EncoderBackend
from earvoice.policy.event import Event, ReplicaLeaving, SessionTotals
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.outbox import Outbox
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.session import TranslationSession
from earvoice.policy.settings import PolicySettings
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import EarvoiceError, OutOfOrderError, SessionTooLongError


class TranslationStream:
    """Joins a client's audio, a session and an outbox.

    Args:
        options: what the stream asked for.
        settings: the service's limits.
        encoder: an open encoder session.
        decoder: an open decoder session.
        observer: is told of every segment.
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
        audio_format = options.audio_format
        rate = audio_format.sample_rate_hertz
        self._max_samples = settings.max_session_ms * rate // 1000
        self._audio = AudioBuffer(
            audio_format.frame_bytes,
            min(
                settings.max_buffered_audio_ms * rate // 1000,
                settings.max_buffered_audio_bytes // audio_format.frame_bytes,
            ),
            resumed.start_sample if resumed else 0,
        )
        self._decided_sample = resumed.decided_sample if resumed else 0
        self._arrivals = ArrivalClock(rate)
        if resumed is not None and resumed.origin_s is not None:
            self._arrivals.assume(resumed.origin_s, time.perf_counter())
        self._outbox = Outbox()
        self._session = TranslationSession(
            options,
            encoder,
            decoder,
            self._audio,
            self._arrivals,
            self._outbox.put,
            time.perf_counter,
            observer,
            resumed,
        )

    @property
    def totals(self) -> SessionTotals:
        """The session's totals so far."""
        return self._session.totals

    async def leave(self, grace_s: float) -> None:
        """Tell the client that this replica is going away."""
        await self._outbox.announce(ReplicaLeaving(grace_s))

    async def end(self, error: EarvoiceError) -> None:
        """End the session with an error, behind the words already released."""
        await self._outbox.close(error)

    async def events(
        self, messages: AsyncIterator[bytes | StreamOptions]
    ) -> AsyncGenerator[Event, None]:
        """Yield what happens, the totals last.

        Args:
            messages: the client's audio, and other options from that place on.

        Raises:
            ExceptionGroup: holds whatever ends the session before its audio.
        """
        async with asyncio.TaskGroup() as group:
            # Their errors travel through the outbox, behind the words already released.
            tasks = [
                group.create_task(self._read(messages)),
                group.create_task(self._work()),
            ]
            try:
                async for event in self._outbox.events():
                    yield event
            except GeneratorExit:
                # The group would wrap it, and then nobody knows it for what it is.
                return
            finally:
                for task in tasks:
                    task.cancel()

    async def _read(self, messages: AsyncIterator[bytes | StreamOptions]) -> None:
        try:
            async for message in messages:
                if isinstance(message, StreamOptions):
                    await self._session.update(message)
                else:
                    await self._add(message)
            self._check_end(self._audio.received_samples)
            await self._audio.end()
        except Exception as error:  # noqa: BLE001 - handed on, not swallowed
            await self._outbox.close(error)

    async def _add(self, data: bytes) -> None:
        arrival_s = time.perf_counter()
        await self._audio.append(data, arrival_s)
        received = self._audio.received_samples
        self._arrivals.note(received, arrival_s)
        self._check_length(received)

    def _check_length(self, received_samples: int) -> None:
        if received_samples > self._max_samples:
            raise SessionTooLongError(
                f"the session has {received_samples} samples; allowed: {self._max_samples}"
            )

    def _check_end(self, received_samples: int) -> None:
        """A session that goes on must be given again what it had decided."""
        if received_samples < self._decided_sample:
            raise OutOfOrderError(
                f"the audio ends at sample {received_samples}; this session has decided it up to "
                f"{self._decided_sample} already: all of it from next_sample on must be sent again"
            )

    async def _work(self) -> None:
        try:
            await self._outbox.put(await self._session.run(), last=True)
        except Exception as error:  # noqa: BLE001 - handed on, not swallowed
            await self._outbox.close(error)
