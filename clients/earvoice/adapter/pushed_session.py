"""A session that is given audio piece by piece, and gives back what that piece brought."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from earvoice.adapter.segment_grid import SegmentGrid
from earvoice.client.errors import InvalidRequestError, ProtocolError
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    SegmentDone,
    Started,
    Summary,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from earvoice.client.event import TranslationEvent
    from earvoice.client.options import TranslationOptions
    from earvoice.client.translation_client import TranslationClient

_MOVING_SEGMENTS = ("local_agreement", "shared_prefix")
"""Policies whose target lag is held by the segments' duration."""


class PushedSession:
    """One stream of audio. Every call must come from the event loop of the client.

    Args:
        client: an open connection.
        options: what was chosen; every segment must be decided.
    """

    def __init__(self, client: TranslationClient, options: TranslationOptions) -> None:
        self._frame_bytes = options.audio.frame_bytes
        # It holds no more than a segment: ``push`` waits at every boundary.
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._events = client.translate(self._audio(), options)
        self._sent_samples = 0
        self._grid: SegmentGrid | None = None
        self._ended = False

    async def push(self, audio: bytes) -> list[CommittedWord]:
        """Send whole frames, and return the words of all segments that they complete.

        Raises:
            TranslationError: the session failed.
        """
        self._pieces.put_nowait(audio)
        self._sent_samples += len(audio) // self._frame_bytes
        words: list[CommittedWord] = []
        while self._grid is None or self._grid.has_due(self._sent_samples):
            words += self._note(await anext(self._events))
        return words

    async def finish(self) -> list[CommittedWord]:
        """End the audio, and return the rest of the words.

        Raises:
            TranslationError: the session failed.
        """
        self._pieces.put_nowait(None)
        words: list[CommittedWord] = []
        while not self._ended:
            words += self._note(await anext(self._events))
        await self._events.aclose()
        return words

    async def leave(self) -> None:
        """Give the session up, wherever it is."""
        await self._events.aclose()

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
    if options.target_lag_ms is not None and started.policy_name in _MOVING_SEGMENTS:
        raise InvalidRequestError(
            f"target_lag is not allowed with policy.{started.policy_name} here: it moves the "
            "segments' ends, and the tools wait for each of them"
        )
    return SegmentGrid(
        options.audio.sample_rate_hz, options.segment_ms, options.initial_wait_ms or 0
    )
