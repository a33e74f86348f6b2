"""One session, over as many calls as it takes: a lost one resumes where it was."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.client.audio_log import AudioLog, HalfFrameError, cut_messages
from earvoice.client.errors import (
    ServerBusyError,
    ServerUnavailableError,
    TranslationError,
    translate_failure,
)
from earvoice.client.event import (
    Committed,
    EndOfUtterance,
    EventReader,
    GoAway,
    Reconnected,
    SegmentDone,
    Started,
    Summary,
    TranslationEvent,
)
from earvoice.client.options import (
    TranslationOptions,
    TranslationUpdate,
    write_config,
    write_update,
)
from earvoice.client.reception import ReceptionClock, StallWatch
from earvoice.client.server_channels import ServerChannel, ServerChannels, connections_closed

_LOG = logging.getLogger("earvoice.client")

Call = grpc.aio.StreamStreamCall[api.StreamingTranslateRequest, api.StreamingTranslateResponse]

REPLAY_LIMIT_BYTES = 32 * 1024 * 1024
"""Audio kept to be sent again, including what the source yields while no server is reachable: a
quarter of an hour at 16 kHz. Servers acknowledge every half minute at the latest."""


FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0

_PASSING_REASONS = ("NOT_READY", "BACKEND_UNAVAILABLE")
_TRANSPORT_CODES = ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED")
_BUSY_REASON = "SESSION_LIMIT"
_TOKEN_REASON = "INVALID_RESUME_TOKEN"  # noqa: S105 - an error's name
_OTHER_REPLICA = ("model", "version")
"""Causes after which another replica may accept the token: servers are being replaced."""
_PLACE = struct.Struct(">5q")
"""A resume point's fields: response, sample, last utterance and segment, last ended utterance."""
_MADE_UP = "Internal error from Core"
"""Details text of the status that grpc.aio invents."""
UTTERANCE_WAIT_SHARE = 0.7
"""Share of the grace spent waiting for an utterance's end: the best place to move a session."""


def is_loss(error: TranslationError) -> bool:
    """Say whether a session may continue elsewhere after an error: the server or the path is lost.

    A proxy reports a dead server with any of several statuses, without a reason of ours.
    """
    if error.reason:
        return error.passing and error.reason in _PASSING_REASONS
    return error.code in _TRANSPORT_CODES


def _may_pass(error: TranslationError) -> bool:
    """Say whether a session that is already lost may still resume after an error."""
    if error.reason == _TOKEN_REASON:
        return error.metadata.get("cause") in _OTHER_REPLICA
    return error.reason == _BUSY_REASON or is_loss(error)


class Reconnection:
    """Counts attempts since the session last made progress.

    Args:
        limit_s: seconds to try for; 0 never tries.
        spread: returns a factor between 0 and 1, so that not all clients come back at once.
    """

    def __init__(
        self,
        limit_s: float,
        now_s: Callable[[], float],
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._limit_s = limit_s
        self._now_s = now_s
        self._spread = spread
        self._lost_s = 0.0
        self.loss: TranslationError | None = None
        self.attempt_count = 0

    def note_progress(self) -> None:
        """Note that the session runs and has got past the point where it was lost."""
        self.loss = None
        self.attempt_count = 0

    def pause_s(self, error: TranslationError) -> float | None:
        """Return how long to wait before the next attempt; None: do not try again.

        Args:
            error: what ended the session or the last attempt.
        """
        if not (_may_pass(error) if self.loss else is_loss(error)):
            return None
        if self.loss is None:
            self.loss, self._lost_s = error, self._now_s()
        pause_s = self._next_pause_s(error.retry_after_s)
        if self.waited_s + pause_s >= self._limit_s:
            return None
        self.attempt_count += 1
        return pause_s

    @property
    def waited_s(self) -> float:
        return self._now_s() - self._lost_s

    def _next_pause_s(self, asked_s: float | None) -> float:
        """Return the pause; 0 before the first attempt: usually another server is ready."""
        if not self.attempt_count:
            return 0.0
        doubled_s = FIRST_PAUSE_S * 2.0 ** min(self.attempt_count - 1, 10)
        pause_s = min(LONGEST_PAUSE_S, max(doubled_s, asked_s or 0.0))
        return pause_s * (0.5 + self._spread() / 2)


class ResumePoint:
    """Where an interrupted session can resume, and which events its caller already has.

    Attributes:
        token: to resume with; empty before the first, when a session can only start over.
        seq: number of the response that the token came with.
        acknowledged_samples: audio before this is never needed again.
        is_valid: whether the session can resume: not after words without a token.
    """

    def __init__(self) -> None:
        self.token = b""
        self.seq = 0
        self.acknowledged_samples = 0
        self.is_valid = True
        self._segment = (-1, -1)
        self._ended_utterance = -1

    def to_bytes(self) -> bytes:
        place = (self.seq, self.acknowledged_samples, *self._segment, self._ended_utterance)
        return _PLACE.pack(*place) + self.token

    @classmethod
    def from_bytes(cls, content: bytes) -> ResumePoint:
        if len(content) <= _PLACE.size:
            raise ValueError("no place to resume from")
        place = _PLACE.unpack_from(content)
        if min(place[:2]) < 0:
            raise ValueError("no place to resume from")
        point = cls()
        point.token = content[_PLACE.size :]
        point.seq, point.acknowledged_samples = place[:2]
        point._segment, point._ended_utterance = (place[2], place[3]), place[4]
        return point

    def note(self, event: TranslationEvent, seq: int) -> bool:
        """Take note of an event; return whether it is new and not a repetition."""
        if isinstance(event, Committed | EndOfUtterance):
            self.token, self.seq = event.resume_token, seq
            self.is_valid = bool(self.token)
            self.acknowledged_samples = max(self.acknowledged_samples, event.acknowledged_samples)
        match event:
            case EndOfUtterance():
                ended = self._ended_utterance
                self._ended_utterance = max(ended, event.utterance)
                return self._ended_utterance > ended
            case SegmentDone():
                known = self._segment
                self._segment = max(known, (event.utterance, event.segment))
                return self._segment > known
        return True


class Departure:
    """When to leave a server that has announced that it is going away."""

    def __init__(
        self, channels: ServerChannels, leaving: ServerChannel, now_s: Callable[[], float]
    ) -> None:
        self._channels = channels
        self._leaving = leaving
        self._now_s = now_s
        self._search: asyncio.Task[None] | None = None
        self._latest_s = 0.0

    def is_due(self, event: TranslationEvent | None) -> bool:
        """Say whether to leave now; an event of None is silence."""
        if isinstance(event, GoAway) and self._search is None:
            self._latest_s = self._now_s() + event.grace_ms / 1000 * UTTERANCE_WAIT_SHARE
            self._search = self._channels.search_other(self._leaving)
        if self._search is None or not self._search.done():
            return False
        self._search.result()
        if isinstance(event, EndOfUtterance):
            return event.cause != "end_of_audio"  # only the summary is left
        return self._now_s() >= self._latest_s


def _note_status(call: Call) -> list[grpc.aio.AioRpcError]:
    """Return a list that gets the call's status as soon as the server has sent it.

    When a write meets the end of its call, grpc.aio replaces the status by an INTERNAL of its own
    (grpc/grpc#36066).
    """
    noted: list[grpc.aio.AioRpcError] = []

    def note(_: object) -> None:
        reading = _status_of(call)
        try:
            reading.send(None)
        except StopIteration as status:
            noted.append(status.value)
        finally:
            reading.close()

    call.add_done_callback(note)
    return noted


def _raise_as_told(failure: grpc.aio.AioRpcError, noted: Sequence[grpc.aio.AioRpcError]) -> None:
    """Raise the server's own status of a call, unless that is OK."""
    told = noted[0] if noted and failure.details() == _MADE_UP else failure
    if told.code() is not grpc.StatusCode.OK:
        raise translate_failure(told) from failure


async def _status_of(call: Call) -> grpc.aio.AioRpcError:
    """Return the status of a call that has ended; does not wait."""
    trailing = await call.trailing_metadata()
    return grpc.aio.AioRpcError(
        await call.code(), grpc.aio.Metadata(), trailing, details=await call.details()
    )


class TranslationStream:
    """One session. It outlives its server: see `Reconnected`.

    Args:
        open_call: opens a call on a channel; its second argument, the same for all calls of the
            session, tells balancers which calls belong together.
        audio: the session's bytes, and updates in their place; read only after the session has
            started, so that a refused session never opens a microphone.
        resume_point: of a session that is resumed here.

    Attributes:
        resume_point: where the session could resume elsewhere, after the events so far.
    """

    def __init__(
        self,
        channels: ServerChannels,
        open_call: Callable[[ServerChannel, str], Any],
        audio: AsyncIterable[bytes | TranslationUpdate],
        options: TranslationOptions,
        now_s: Callable[[], float],
        resume_point: ResumePoint | None = None,
    ) -> None:
        self._channels = channels
        self._open_call = open_call
        self._options = options
        self._now_s = now_s
        self.resume_point = resume_point or ResumePoint()
        self._clock = ReceptionClock(paced=options.paced, now_s=now_s)
        limit_bytes = REPLAY_LIMIT_BYTES if options.reconnect_limit_s else 0
        start_sample = self.resume_point.acknowledged_samples
        self._log = AudioLog(options.audio.frame_bytes, limit_bytes, start_sample)
        self._audio = audio
        self._is_audio_wanted = asyncio.Event()
        self._updates: deque[TranslationUpdate] = deque()
        self._reconnection = Reconnection(options.reconnect_limit_s, now_s)
        self._affinity = uuid.uuid4().hex
        self._started = False
        self._is_told = False
        self._fault: HalfFrameError | None = None

    def update(self, update: TranslationUpdate) -> None:
        """Change the session: the update is sent before the next audio.

        So it takes effect with the first segment that ends after the audio sent so far. A caller
        that needs the place exact to the sample puts the update among the audio. One that comes
        before the audio's end and after its last piece affects only the final segment; one that
        comes later is dropped.
        """
        self._updates.append(update)

    async def events(self) -> AsyncGenerator[TranslationEvent, None]:
        """Yield the server's events up to its summary; none twice, and none left out.

        Raises:
            AudioSourceError: the audio ends inside a frame; the audio before is translated first.
            TranslationError: the session failed and cannot go on, or the server broke the protocol.
            Exception: what the audio raised, as it is.
        """
        lost: ServerChannel | None = None
        untried_count = 0
        pumping = asyncio.create_task(self._pump())
        try:
            while True:
                try:
                    async with self._channels.use(lost) as channel:
                        lost = channel
                        async with aclosing(self._attempt(channel, pumping)) as events:
                            async for event in events:
                                yield event
                    break
                except TranslationError as error:
                    if self._is_told and is_loss(error):
                        # Only the status after the summary is lost.
                        break
                    failure = error
                if not self._started and not untried_count:
                    untried_count = await self._channels.count()
                untried_count -= 1
                await self._pause(failure, untried_count)
            if self._fault is not None:
                raise self._fault
        finally:
            pumping.cancel()
            await asyncio.wait({pumping})
            if not pumping.cancelled():
                # Retrieved, so that asyncio does not log it if the session ended otherwise.
                pumping.exception()

    async def _pump(self) -> None:
        """Read the source into the log, once the session has started."""
        await self._is_audio_wanted.wait()
        try:
            async for message in cut_messages(self._audio, self._options.audio.frame_bytes):
                await self._add_updates()
                await self._log.add(message)
        except HalfFrameError as error:
            self._fault = error  # all audio that can be translated is in the log
        await self._add_updates()
        await self._log.end()

    async def _add_updates(self) -> None:
        while self._updates:
            await self._log.add(self._updates.popleft())

    async def _attempt(
        self, channel: ServerChannel, pumping: asyncio.Task[None]
    ) -> AsyncGenerator[TranslationEvent, None]:
        """Yield the events of one call; a task sends the audio meanwhile."""
        watch = StallWatch(self._options.stall_timeout_s, self._now_s, channel.answers)
        reader = EventReader(self._options.audio, self._clock.read_ms, self.resume_point.seq)
        departure = Departure(self._channels, channel, self._now_s)
        call = self._open_call(channel, self._affinity)
        noted = _note_status(call)
        # Iterate instead of `read`, which drops unread responses if the call's status is lost.
        responses = aiter(call)
        next_sample = asyncio.get_running_loop().create_future()
        sender = asyncio.create_task(self._send(call, watch, next_sample))
        reading: asyncio.Future[Any] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(anext(responses, None))
                await _wait(reading, pumping, sender, timeout_s=watch.interval_s)
                event: TranslationEvent | None = None
                if reading.done():
                    response, reading = reading.result(), None
                    if response is None:
                        break
                    event = reader.read(response)
                    if event is None:
                        continue
                    watch.note_event(event)
                    if isinstance(event, Started):
                        next_sample.set_result(event.next_sample)
                    if await self._note(event, reader.last_seq):
                        yield self._told(event)
                elif await watch.is_stalled():
                    raise ServerUnavailableError(
                        "the server has stopped answering", code="UNAVAILABLE"
                    )
                moves = self._options.reconnect_limit_s > 0 and self._can_resume
                if departure.is_due(event) and moves:
                    raise ServerUnavailableError(
                        "the server is stopping", code="UNAVAILABLE", reason="NOT_READY"
                    )
            reader.check_end()
        except grpc.aio.AioRpcError as failure:
            _raise_as_told(failure, noted)
            reader.check_end()
        finally:
            await self._end(call, sender, reading)

    async def _send(self, call: Call, watch: StallWatch, next_sample: asyncio.Future[int]) -> None:
        audio = self._options.audio
        try:
            config = write_config(self._options, self.resume_point.token)
            await call.write(api.StreamingTranslateRequest(config=config))
            position = await next_sample
            async for content in self._log.read(position):
                if isinstance(content, bytes):
                    begin_ms = audio.position_ms(position)
                    position += len(content) // audio.frame_bytes
                    end_ms = audio.position_ms(position)
                    self._clock.note_sending(begin_ms, end_ms)
                    watch.note_sent(end_ms)
                    await call.write(api.StreamingTranslateRequest(audio=content))
                    continue
                if content.segment_ms is not None:
                    watch.note_longer_segments(content.segment_ms)
                await call.write(api.StreamingTranslateRequest(update=write_update(content)))
            await call.done_writing()
            watch.note_sent(float("inf"))
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            # The call is over; the reading side gets its status.
            return

    async def _end(
        self, call: Call, sender: asyncio.Future[Any], reading: asyncio.Future[Any] | None
    ) -> None:
        waiting = {sender} if reading is None else {sender, reading}
        # Cancel the tasks, too: cancelling the call does not reach a write that waits for its
        # connection.
        for task in waiting:
            task.cancel()
        call.cancel()
        await asyncio.wait(waiting)
        await self._log.stop_reading()
        for ended in waiting:
            # Retrieved, so that asyncio does not log it.
            if not ended.cancelled():
                ended.exception()

    async def _note(self, event: TranslationEvent, seq: int) -> bool:
        news = self.resume_point.note(event, seq)
        if isinstance(event, Committed | EndOfUtterance):
            await self._log.acknowledge(self.resume_point.acknowledged_samples)
            self._reconnection.note_progress()
        if news and isinstance(event, SegmentDone):
            # Silence is progress, too, although nothing is committed in it.
            self._reconnection.note_progress()
        self._is_told = isinstance(event, Summary)
        return news

    def _told(self, event: TranslationEvent) -> TranslationEvent:
        """Return the event; the start of a resumed session becomes ``Reconnected``."""
        if not isinstance(event, Started):
            return event
        self._is_audio_wanted.set()
        loss = self._reconnection.loss
        if not self._started or loss is None:
            self._started = True
            return event
        gap_ms = self._reconnection.waited_s * 1000
        return Reconnected(loss.message, gap_ms, self._reconnection.attempt_count, event.session_id)

    @property
    def _can_resume(self) -> bool:
        return (
            self.resume_point.is_valid
            and not self._channels.is_closed
            and self._log.start_sample <= self.resume_point.acknowledged_samples
        )

    async def _pause(self, error: TranslationError, untried_count: int) -> None:
        """Wait before the next attempt."""
        if self._channels.is_closed:
            raise self._with_position(error)
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
        error.acknowledged_samples = self.resume_point.acknowledged_samples
        error.resume_token = self.resume_point.token
        return error


async def _wait(
    reading: asyncio.Future[Any],
    pumping: asyncio.Future[None],
    sender: asyncio.Future[None],
    timeout_s: float,
) -> None:
    """Wait for an answer up to ``timeout_s``; raise whatever has failed meanwhile."""
    working = {future for future in (pumping, sender) if not future.done()}
    await asyncio.wait({reading, *working}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if pumping.done():
        pumping.result()
    if reading.cancelled() or sender.cancelled():
        # Not cancelled by us: the connections were closed meanwhile.
        raise connections_closed()
    if sender.done():
        sender.result()
