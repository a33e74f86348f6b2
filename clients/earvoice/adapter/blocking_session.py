"""Blocking sessions: a piece of audio in, its words out.

The asynchronous client runs in its own event loop, in a thread. A piece is answered once every
segment that it completes has been decided.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from earvoice.client.errors import InvalidRequestError, ProtocolError
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    SegmentDone,
    Started,
    Summary,
    TranslationEvent,
)
from earvoice.client.options import TranslationOptions
from earvoice.client.translation_client import TranslationClient, connect
from earvoice.policies import DecisionPolicy

_SETTLING_S = 5.0
"""How long gRPC may take to report the end of calls to a loop that is closing."""

Result = TypeVar("Result")


class SegmentGrid:
    """Tells which segments are due for the audio sent so far, if the session decides every one.

    Segment k of an utterance ends k segment durations plus the initial wait after the utterance's
    start; the next utterance begins where this one ends.
    """

    def __init__(self, sample_rate_hz: int, segment_ms: int, initial_wait_ms: int) -> None:
        self._rate_hz = sample_rate_hz
        self._segment_ms = segment_ms
        self._wait_ms = initial_wait_ms
        self._start_sample = 0
        self._segment = 0
        self._border_follows = False

    def has_due(self, sent_samples: int) -> bool:
        if self._border_follows:
            return True
        next_ms = (self._segment + 1) * self._segment_ms + self._wait_ms
        return self._start_sample + next_ms * self._rate_hz // 1000 <= sent_samples

    def note_segment(self, done: SegmentDone) -> None:
        self._segment = done.segment
        self._border_follows = done.ends_utterance

    def note_utterance(self, ended: EndOfUtterance) -> None:
        self._start_sample = round(ended.end_ms * self._rate_hz / 1000)
        self._segment = 0
        self._border_follows = False


class PushedSession:
    """One stream of audio. Call it only from the client's event loop."""

    def __init__(self, client: TranslationClient, options: TranslationOptions) -> None:
        self._frame_bytes = options.audio.frame_bytes
        # It holds no more than a segment: ``push`` waits at every boundary.
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._events = client.translate(self._audio(), options)
        self._sent_samples = 0
        self._grid: SegmentGrid | None = None
        self._ended = False
        self._waiting: asyncio.Task[Any] | None = None

    async def push(self, audio: bytes) -> list[CommittedWord]:
        """Send whole frames, and return the words of all segments that they complete."""
        self._pieces.put_nowait(audio)
        self._sent_samples += len(audio) // self._frame_bytes
        words: list[CommittedWord] = []
        while self._grid is None or self._grid.has_due(self._sent_samples):
            words += self._note(await self._next())
        return words

    async def finish(self) -> list[CommittedWord]:
        self._pieces.put_nowait(None)
        words: list[CommittedWord] = []
        while not self._ended:
            words += self._note(await self._next())
        await self._events.aclose()
        return words

    async def leave(self) -> None:
        if self._waiting is not None:
            # An interrupted call may not have ended yet, or one may still wait in another thread.
            self._waiting.cancel()
            await asyncio.wait({self._waiting})
        await self._events.aclose()

    async def _next(self) -> TranslationEvent:
        self._waiting = asyncio.current_task()
        try:
            return await anext(self._events)
        finally:
            self._waiting = None

    async def _audio(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    def _note(self, event: TranslationEvent) -> tuple[CommittedWord, ...]:
        match event:
            case Started():
                self._grid = _grid(event)
            case Committed():
                return event.words
            case SegmentDone() if self._grid:
                self._grid.note_segment(event)
            case EndOfUtterance() if self._grid:
                self._grid.note_utterance(event)
            case Summary():
                self._ended = True
        return ()


def _grid(started: Started) -> SegmentGrid:
    options = started.options
    if options.catch_up != "every-segment" or options.segment_ms is None:
        raise ProtocolError("the server does not decide every segment")
    policy = options.policy
    # One that only the server knows may move them, too.
    moves = not isinstance(policy, DecisionPolicy) or policy.segment_ms_at(0.0) is not None
    if options.target_lag_ms is not None and moves:
        raise InvalidRequestError(
            f"target_lag is not allowed with policy.{started.policy_name} here: it moves the "
            "segments' ends, and the tools wait for each of them"
        )
    return SegmentGrid(
        options.audio.sample_rate_hz, options.segment_ms, options.initial_wait_ms or 0
    )


class BlockingConnection:
    """A blocking connection; it closes when it is garbage-collected or the program ends.

    Raises:
        ValueError: the address is not valid.
    """

    def __init__(self, address: str) -> None:
        loop, ended = asyncio.new_event_loop(), threading.Event()
        # A daemon thread, because these tools have no shutdown hook: the finalizer stops it.
        thread = threading.Thread(target=_run, args=(loop, ended), name="earvoice", daemon=True)
        thread.start()
        # At exit the younger finalizer, which closes the connection, runs first; this one waits.
        weakref.finalize(thread, ended.wait, 2 * _SETTLING_S)
        self._loop = loop
        try:
            self._client = self._wait(_connect(address))
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            raise
        # Sessions that were neither finished nor left end with the connection.
        self._sessions: set[PushedSession] = set()
        self.close = weakref.finalize(self, _close, loop, self._client, self._sessions)

    def open(self, options: TranslationOptions) -> BlockingSession:
        """Return a session; nothing is sent before its first audio."""
        session = self._wait(_open(self._client, options))
        self._sessions.add(session)
        return BlockingSession(self, session)

    def _end(self, session: PushedSession, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._wait(work)
        finally:
            self._sessions.discard(session)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return _wait(self._loop, work)


class BlockingSession:
    """One stream of audio, in the event loop of its connection."""

    def __init__(self, connection: BlockingConnection, session: PushedSession) -> None:
        self._connection = connection
        self._session = session

    def push(self, audio: bytes) -> list[CommittedWord]:
        """Send whole frames, and return the words of all segments that they complete."""
        return self._connection._wait(self._session.push(audio))  # noqa: SLF001 - its other half

    def finish(self) -> list[CommittedWord]:
        return self._connection._end(  # noqa: SLF001 - its other half
            self._session, self._session.finish()
        )

    def leave(self) -> None:
        self._connection._end(  # noqa: SLF001 - its other half
            self._session, self._session.leave()
        )


async def _connect(address: str) -> TranslationClient:
    # Channels belong to the event loop in which they are made.
    return connect(address)


async def _open(client: TranslationClient, options: TranslationOptions) -> PushedSession:
    return PushedSession(client, options)


def _run(loop: asyncio.AbstractEventLoop, ended: threading.Event) -> None:
    try:
        loop.run_forever()
        loop.close()
    finally:
        ended.set()


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result]) -> Result:
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise
    finally:
        # Breaks a cycle: an error's traceback would hold the future, which holds the error; the
        # connection would stay alive, too.
        del future


def _close(
    loop: asyncio.AbstractEventLoop, client: TranslationClient, sessions: Iterable[PushedSession]
) -> None:
    # Garbage collection may run this in any thread, even the loop's, under any lock: never wait.
    asyncio.run_coroutine_threadsafe(_shut_down(loop, client, sessions), loop)


async def _shut_down(
    loop: asyncio.AbstractEventLoop, client: TranslationClient, sessions: Iterable[PushedSession]
) -> None:
    try:
        for session in tuple(sessions):
            await session.leave()
        await client.close()
        await _settle()
    finally:
        loop.stop()


async def _settle() -> None:
    # gRPC reports the end of a call to the call's loop, which must not be closed before that.
    if rest := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(rest, timeout=_SETTLING_S)
