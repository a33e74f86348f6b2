"""Sessions for callers that wait: the asynchronous client in an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from earvoice.adapter.pushed_session import PushedSession
from earvoice.client.translation_client import TranslationClient, connect

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from earvoice.client.event import CommittedWord
    from earvoice.client.options import TranslationOptions

_SETTLING_S = 5.0
"""How long gRPC may take to tell the end of calls to a loop that is closing."""

Result = TypeVar("Result")


class BlockingConnection:
    """A connection that is waited on; it closes when it is collected or the program ends.

    Args:
        address: ``host:port``.

    Raises:
        ValueError: the address is none.
    """

    def __init__(self, address: str) -> None:
        loop, ended = asyncio.new_event_loop(), threading.Event()
        # A daemon, because these tools have no hook for their end: the finalizer stops it.
        thread = threading.Thread(target=_run, args=(loop, ended), name="earvoice", daemon=True)
        thread.start()
        # At the program's end the younger finalizer comes first: what it closes is waited for.
        weakref.finalize(thread, ended.wait, 2 * _SETTLING_S)
        self._loop = loop
        try:
            self._client = self._wait(_connect(address))
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            raise
        # What nobody ended or left ends with the connection.
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
    """One stream of audio.

    Args:
        connection: whose event loop it lives in.
        session: the session.
    """

    def __init__(self, connection: BlockingConnection, session: PushedSession) -> None:
        self._connection = connection
        self._session = session

    def push(self, audio: bytes) -> list[CommittedWord]:
        """Send whole frames, and return the words of all segments that they complete.

        Raises:
            TranslationError: the session failed.
        """
        return self._connection._wait(self._session.push(audio))  # noqa: SLF001 - its other half

    def finish(self) -> list[CommittedWord]:
        """End the audio, and return the rest of the words.

        Raises:
            TranslationError: the session failed.
        """
        return self._connection._end(  # noqa: SLF001 - its other half
            self._session, self._session.finish()
        )

    def leave(self) -> None:
        """Give the session up, wherever it is."""
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
        # An error's traceback would hold the future that holds the error, and the connection too.
        del future


def _close(
    loop: asyncio.AbstractEventLoop, client: TranslationClient, sessions: Iterable[PushedSession]
) -> None:
    # Garbage is collected in any thread, under any lock, in the loop's own thread too: never wait.
    asyncio.run_coroutine_threadsafe(_shut_down(loop, client, sessions), loop)


async def _shut_down(
    loop: asyncio.AbstractEventLoop, client: TranslationClient, sessions: Iterable[PushedSession]
) -> None:
    try:
        for session in sessions:
            await session.leave()
        await client.close()
        await _settle()
    finally:
        loop.stop()


async def _settle() -> None:
    # gRPC tells the end of a call to the loop of the call, and that must not be closed by then.
    if rest := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(rest, timeout=_SETTLING_S)
