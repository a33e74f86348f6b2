"""What the ears of LiveKit's and Pipecat's agents have in common.

A call's sound may stop for a while, as of a microphone that is muted: each stretch is a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from earvoice.client import CommittedWord, TranslationOptions, join_words

Sound = TypeVar("Sound")

CAPTIONS = TranslationOptions(("en",))
QUIET_S = 5.0
"""A stretch ends once no sound has come for so long; silence is sound. Its last words are released
then, and no server has to end a session for being idle."""


class Stretches(Generic[Sound]):
    """Chunks of sound as they come.

    Args:
        receive: returns the next chunk, or None at the end of all; may be cancelled.
        quiet_s: see `QUIET_S`.

    Attributes:
        next: the chunk that comes next, where it is here already.
    """

    def __init__(
        self, receive: Callable[[], Awaitable[Sound | None]], quiet_s: float = QUIET_S
    ) -> None:
        self._receive, self._quiet_s = receive, quiet_s
        self._has_ended = False
        self.next: Sound | None = None

    async def wait(self) -> bool:
        """Wait for the next stretch; return whether there is one."""
        if self.next is None and not self._has_ended:
            await self._fetch()
        return self.next is not None

    async def chunks(self) -> AsyncIterator[Sound]:
        """Yield a stretch's chunks; one that is not asked for stays for the next iterator."""
        while self.next is not None:
            chunk, self.next = self.next, None
            yield chunk
            try:
                async with asyncio.timeout(self._quiet_s):
                    await self._fetch()
            except TimeoutError:
                return

    async def _fetch(self) -> None:
        self.next = await self._receive()
        self._has_ended = self.next is None


def text_so_far(words: Sequence[CommittedWord], tail: str = "") -> str:
    """Return an utterance's words, and the tail that may still change."""
    return " ".join(filter(None, (join_words(words), tail)))
