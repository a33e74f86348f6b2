"""One session, over as many calls as it takes."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from earvoice.client.audio_log import AudioLog
from earvoice.client.audio_pump import AudioPump
from earvoice.client.call_attempt import CallAttempt
from earvoice.client.departure import Departure
from earvoice.client.errors import ServerBusyError, ServerUnavailableError, TranslationError
from earvoice.client.event import (
    Committed,
    EndOfUtterance,
    Reconnected,
    SegmentDone,
    Started,
    Summary,
    TranslationEvent,
)
from earvoice.client.event_reader import EventReader
from earvoice.client.reception_clock import ReceptionClock
from earvoice.client.reconnection import Reconnection, is_loss
from earvoice.client.resume_point import ResumePoint
from earvoice.client.stall_watch import StallWatch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable

    from earvoice.client.options import TranslationOptions, TranslationUpdate
    from earvoice.client.server_channels import ServerChannel, ServerChannels

REPLAY_LIMIT_BYTES = 32 * 1024 * 1024
"""Audio kept to be sent again, and taken from its source while nobody is there to send it to: a
quarter of an hour at 16 kHz. Servers acknowledge every half minute at the latest."""


class TranslationStream:
    """One session. It outlives its server: see `Reconnected`.

    Args:
        channels: to the server.
        open_call: opens a call on one, and tells balancers which calls belong together.
        audio: the session's bytes, and updates in their place; asked for only after the session
            has started, so that a refused session never opens a microphone.
        options: what was chosen.
        now_s: a monotonic clock in seconds.
    """

    def __init__(
        self,
        channels: ServerChannels,
        open_call: Callable[[ServerChannel, str], Any],
        audio: AsyncIterable[bytes | TranslationUpdate],
        options: TranslationOptions,
        now_s: Callable[[], float],
    ) -> None:
        self._channels = channels
        self._open_call = open_call
        self._options = options
        self._now_s = now_s
        self._clock = ReceptionClock(options.audio, paced=options.paced, now_s=now_s)
        limit_bytes = REPLAY_LIMIT_BYTES if options.reconnect_limit_s else 0
        self._log = AudioLog(options.audio.frame_bytes, limit_bytes)
        self._pump = AudioPump(audio, options.audio, self._log)
        self._point = ResumePoint()
        self._reconnection = Reconnection(options.reconnect_limit_s, now_s)
        self._affinity = uuid.uuid4().hex
        self._started = False
        self._is_told = False

    def update(self, update: TranslationUpdate) -> None:
        """Change the session: it is sent before the next audio.

        So it holds from the first segment on that ends after the audio sent until now. A caller
        who must know the place to the sample puts the update among the audio. One that comes
        after the last audio holds for the final segment only.
        """
        self._pump.add_update(update)

    async def events(self) -> AsyncGenerator[TranslationEvent, None]:
        """Yield what the server tells until its summary; nothing twice, and nothing left out.

        Raises:
            TranslationError: the session failed and cannot go on, or the server broke the protocol.
            Exception: what the audio raised, as it is.
        """
        lost: ServerChannel | None = None
        untried_count = 0
        try:
            while True:
                async with self._channels.use(lost) as channel:
                    try:
                        async with aclosing(self._attempt(channel)) as events:
                            async for event in events:
                                yield event
                    except TranslationError as error:
                        if self._is_told and is_loss(error):
                            # What is lost is the farewell behind the summary.
                            return
                        lost = channel
                        failure = error
                    else:
                        return
                if not self._started and not untried_count:
                    untried_count = await self._channels.count()
                untried_count -= 1
                await self._pause(failure, untried_count)
        finally:
            await self._pump.stop()

    async def _attempt(self, channel: ServerChannel) -> AsyncGenerator[TranslationEvent, None]:
        """Yield the events of one call that are news."""
        watch = StallWatch(self._options.stall_timeout_s, self._now_s, channel.answers)
        reader = EventReader(self._options.audio, self._clock.read_ms, self._point.seq)
        call = CallAttempt(
            self._open_call(channel, self._affinity), self._log, reader, self._clock, watch
        )
        departure = Departure(self._channels, channel, self._now_s)
        token = self._point.token
        events = call.events(self._options, token, self._pump.failing)
        try:
            async with aclosing(events):
                async for event in events:
                    if event is not None and await self._note(event, reader.last_seq):
                        yield self._told(event)
                    if departure.is_due(event) and self._can_resume:
                        raise ServerUnavailableError(
                            "the server is stopping", code="UNAVAILABLE", reason="NOT_READY"
                        )
        finally:
            await departure.close()

    async def _note(self, event: TranslationEvent, seq: int) -> bool:
        news = self._point.note(event, seq)
        if isinstance(event, Committed | EndOfUtterance):
            await self._log.acknowledge(self._point.acknowledged_samples)
            self._reconnection.note_progress()
        if news and isinstance(event, SegmentDone):
            # Silence, too, is progress: nothing is committed in it.
            self._reconnection.note_progress()
        self._is_told = isinstance(event, Summary)
        return news

    def _told(self, event: TranslationEvent) -> TranslationEvent:
        """The start of a session that goes on is told as that."""
        if not isinstance(event, Started):
            return event
        self._pump.start()
        loss = self._reconnection.loss
        if not self._started or loss is None:
            self._started = True
            return event
        gap_ms = self._reconnection.waited_s * 1000
        return Reconnected(loss.message, gap_ms, self._reconnection.attempt_count, event.session_id)

    @property
    def _can_resume(self) -> bool:
        return self._point.is_valid and self._log.start_sample <= self._point.acknowledged_samples

    async def _pause(self, error: TranslationError, untried_count: int) -> None:
        """Wait before the next attempt, if there shall be one.

        Raises:
            TranslationError: there shall be none.
        """
        if not self._started:
            if untried_count > 0 and isinstance(error, ServerUnavailableError | ServerBusyError):
                return
            raise self._with_position(error)
        pause_s = self._reconnection.pause_s(error) if self._can_resume else None
        if pause_s is None:
            raise self._with_position(self._reconnection.loss or error) from error
        await asyncio.sleep(pause_s)

    def _with_position(self, error: TranslationError) -> TranslationError:
        error.session_started = self._started
        error.acknowledged_samples = self._point.acknowledged_samples
        error.resume_token = self._point.token
        return error
