"""One caller's audio, translated into each language that was asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from earvoice.client import (
    AudioSourceError,
    Committed,
    EndOfUtterance,
    Reconnected,
    ResumePoint,
    Started,
    TranslationClient,
    TranslationEvent,
    TranslationOptions,
    TranslationUpdate,
)
from earvoice.client.audio_log import held_bytes
from earvoice.gateway.published import Publication
from earvoice.runtime.errors import InvalidAudioError, OutOfOrderError
from earvoice.telemetry.metering import Meters

WAITING_AUDIO_MS = 2_000
Tell = Callable[[str, TranslationEvent, bytes], Awaitable[None]]
"""Takes a session's tag, an event of it, and the resume point after it; empty if none."""


class _AudioQueue:
    """Audio on its way to one session: bounded by its length."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._chunks: asyncio.Queue[bytes | TranslationUpdate | None] = asyncio.Queue()
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def put(self, content: bytes | TranslationUpdate | None) -> None:
        """Add audio, a change, or None for the end; wait while too much is held."""
        await self._has_room.wait()
        self._chunks.put_nowait(content)
        if content is not None:
            self._held_bytes += held_bytes(content)
        if self._held_bytes >= self._limit_bytes:
            self._has_room.clear()

    def close(self) -> None:
        """Release whoever waits in `put`: the session is over and takes no more."""
        self._limit_bytes = 1 << 62
        self._has_room.set()

    async def __aiter__(self) -> AsyncIterator[bytes | TranslationUpdate]:
        while (content := await self._chunks.get()) is not None:
            self._held_bytes -= held_bytes(content)
            if self._held_bytes < self._limit_bytes:
                self._has_room.set()
            yield content


def voices_of(languages: Iterable[str], tracks: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the sessions' tags, each with its language and track: ``de``, or ``de-x-inbound``."""
    return {
        f"{language}-x-{track}" if track else language: (language, track)
        for track in tracks
        for language in languages
    }


class Speaker:
    """A session for each target language, all of the same audio, or for each track and language.

    Args:
        options: of the caller; the sessions differ only in their target language.
        resume_points: by language, where to resume sessions of another gateway; the audio then
            begins at the earliest of their ``acknowledged_samples`` (0 for a language without).
        tracks: see `StartMessage`.
        publish: called with the sessions' tags when all have begun; what it returns gets every
            event from then on, for readers.
        meters: of the gateway.

    Attributes:
        session_ids: of the sessions until now, for logs.
        publication: see ``publish``; None until then.
        started: set once one of the sessions has begun.
        longest_relay_ms: longest time from a word's arrival until it was written to the caller.
    """

    def __init__(
        self,
        client: TranslationClient,
        options: TranslationOptions,
        resume_points: Mapping[str, ResumePoint] | None = None,
        publish: Callable[[Iterable[str]], Publication] | None = None,
        meters: Meters | None = None,
        tracks: Sequence[str] = ("",),
    ) -> None:
        self._client = client
        self._meters = meters
        self._options = options
        self._resume_points = resume_points or {}
        points = [self._resume_points.get(language) for language in options.target_languages]
        self._start_sample = min(point.acknowledged_samples if point else 0 for point in points)
        self._publish = publish
        self.publication: Publication | None = None
        self.session_ids: list[str] = []
        self.started = asyncio.Event()
        self.word_count = 0
        self.longest_relay_ms = 0.0
        self.has_ended = False
        self._has_left = False
        self._fault: Exception | None = None
        rate = options.audio.sample_rate_hz * options.audio.frame_bytes
        limit_bytes = rate * WAITING_AUDIO_MS // 1000
        self._voices = voices_of(options.target_languages, tracks)
        self._audio = {voice: _AudioQueue(limit_bytes) for voice in self._voices}
        self._waiting_for = set(self._audio)
        self._all_admitted = asyncio.Event()

    @property
    def languages(self) -> tuple[str, ...]:
        """The sessions' tags; see `voices_of`."""
        return tuple(self._voices)

    async def send(self, audio: bytes | TranslationUpdate, track: str = "") -> None:
        """Send a track's audio, cut anywhere, or a change; waits while the services are behind."""
        if self.has_ended:
            raise OutOfOrderError("audio came after the end")
        if audio == b"":
            return
        for voice, queue in self._audio.items():
            if self._voices[voice][1] == track:
                await queue.put(audio)

    async def end(self, fault: Exception | None = None) -> None:
        """End the audio; `run` raises a fault in it once everything before is translated."""
        if self.has_ended:
            return
        self.has_ended = True
        self._fault = fault
        for queue in self._audio.values():
            await queue.put(None)

    def leave(self) -> None:
        """Note that nobody speaks any more: the name is free while the last words still come."""
        self._has_left = True
        if self.publication is not None:
            self.publication.is_left = True

    async def run(self, tell: Tell) -> None:
        """Translate until all sessions have ended; each waits until ``tell`` has taken its event.

        Raises:
            Exception: the fault given to `end`.
        """
        async with asyncio.TaskGroup() as group:
            for voice in self._voices:
                group.create_task(self._translate(voice, tell))
        if self._fault is not None:
            raise self._fault

    def _note(self, voice: str, event: TranslationEvent) -> None:
        match event:
            case Started() | Reconnected():
                self.session_ids.append(event.session_id)
                self.started.set()
                self._waiting_for.discard(voice)
                if not self._waiting_for:
                    self._all_admitted.set()
            case Committed():
                self.word_count += sum(word.starts_word for word in event.words)
        if self._publish is not None and self.publication is None and not self._waiting_for:
            self.publication = self._publish(self.languages)
            self.publication.is_left = self._has_left
        if self.publication is not None:
            self.publication.publish(voice, event)

    async def _translate(self, voice: str, tell: Tell) -> None:
        language, _ = self._voices[voice]
        options = replace(self._options, target_languages=(language,), paced=True)
        queue = self._audio[voice]
        point = self._resume_points.get(voice)
        # Sessions may resume at different places: drop the audio that this one does not need.
        skipped_samples = point.acknowledged_samples - self._start_sample if point else 0
        skipped_bytes = skipped_samples * options.audio.frame_bytes
        audio = _without_start(aiter(queue), skipped_bytes, self._all_admitted)
        stream = self._client.open(audio, options, point)
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    came_s = time.perf_counter()
                    point_then = b""
                    if isinstance(event, Committed | EndOfUtterance) and event.resume_token:
                        point_then = stream.resume_point.to_bytes()
                    self._note(voice, event)
                    await tell(voice, event, point_then)
                    if isinstance(event, Committed):
                        self._note_relay(1000 * (time.perf_counter() - came_s))
        except AudioSourceError as error:
            # Let the other languages finish first.
            self._fault = self._fault or InvalidAudioError(error.message)
        finally:
            queue.close()

    def _note_relay(self, relay_ms: float) -> None:
        self.longest_relay_ms = max(self.longest_relay_ms, relay_ms)
        if self._meters is not None:
            self._meters.record("earvoice.gateway.relay", relay_ms)


async def _without_start(
    audio: AsyncIterator[bytes | TranslationUpdate], skipped_bytes: int, admitted: asyncio.Event
) -> AsyncIterator[bytes | TranslationUpdate]:
    # While a session may still be refused, no words are told: nothing is lost by trying again.
    await admitted.wait()
    async for content in audio:
        if not isinstance(content, bytes):
            yield content
            continue
        kept = content[skipped_bytes:]
        skipped_bytes -= len(content) - len(kept)
        if kept:
            yield kept
