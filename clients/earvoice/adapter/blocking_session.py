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

Result = TypeVar("Result")


class BlockingConnection:
    """A connection that is waited on; it closes when it is collected or the program ends.

    Args:
        address: ``host:port``.
    """

    def __init__(self, address: str) -> None:
        loop = asyncio.new_event_loop()
        # A daemon, because these tools have no hook for their end: the finalizer stops it.
        thread = threading.Thread(target=loop.run_forever, name="earvoice", daemon=True)
        thread.start()
        self._loop = loop
        self._client = self._wait(_connect(address))
        # What nobody ended or left ends with the connection.
        self._sessions: set[PushedSession] = set()
        self.close = weakref.finalize(self, _close, loop, thread, self._client, self._sessions)

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


async def _shut_down(client: TranslationClient, sessions: Iterable[PushedSession]) -> None:
    for session in sessions:
        await session.leave()
    await client.close()


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result]) -> Result:
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise


def _close(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    client: TranslationClient,
    sessions: Iterable[PushedSession],
) -> None:
    _wait(loop, _shut_down(client, sessions))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
