"""From the source of a session's audio into its log."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from earvoice.client.framing import FrameCutter
from earvoice.client.options import TranslationUpdate

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from earvoice.client.audio_format import AudioFormat
    from earvoice.client.audio_log import AudioLog


class AudioPump:
    """Reads the source in a task, once it is started.

    Args:
        source: bytes cut anywhere, and updates in their place.
        audio: format of the bytes.
        log: takes them.

    Attributes:
        failing: gets what the source raises.
    """

    def __init__(
        self, source: AsyncIterable[bytes | TranslationUpdate], audio: AudioFormat, log: AudioLog
    ) -> None:
        self._source = source
        self._cutter = FrameCutter(audio)
        self._log = log
        self._updates: deque[TranslationUpdate] = deque()
        self._task: asyncio.Task[None] | None = None
        self.failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add_update(self, update: TranslationUpdate) -> None:
        """Put an update before the next audio."""
        self._updates.append(update)

    def start(self) -> None:
        """Begin to read; void when it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if not self.failing.cancel() and not self.failing.cancelled():
            # Looked at: who ended the session for another reason need not hear of it.
            self.failing.exception()

    async def _run(self) -> None:
        try:
            async for chunk in self._source:
                await self._add_updates()
                if isinstance(chunk, TranslationUpdate):
                    await self._log.add(chunk)
                    continue
                for message in self._cutter.add(chunk):
                    await self._log.add(message)
            await self._add_updates()
            self._cutter.check_end()
            await self._log.end()
        except Exception as error:  # noqa: BLE001 - handed on, not swallowed
            self.failing.set_exception(error)

    async def _add_updates(self) -> None:
        while self._updates:
            await self._log.add(self._updates.popleft())
