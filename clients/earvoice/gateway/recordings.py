"""Recordings and containers that browsers cannot read, decoded by the installed ffmpeg."""

from __future__ import annotations

import asyncio
import errno
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, suppress
from typing import IO

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from earvoice.client import AudioFormat, AudioSourceError, TranslationUpdate
from earvoice.client.ffmpeg import STDIN_PATH, FfmpegAudio, probe_file
from earvoice.gateway.access import shown_token
from earvoice.gateway.connection import body_of, unless_gone, wait_until_gone
from earvoice.gateway.door import RETRY_MS, Door
from earvoice.gateway.settings import GatewaySettings
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.engine import to_its_end
from earvoice.runtime.errors import (
    InvalidAudioError,
    NotReadyError,
    OutOfOrderError,
    SessionLimitError,
)

_LOG = logging.getLogger(__name__)
DECODED = AudioFormat()
"""Format in which a recording's sound is returned."""
LONGEST_MS = 4 * 3_600_000
MOST_AT_ONCE = 8
"""Recordings that are being uploaded, decoded or sent back. Two of them have both files: with
recordings of `MAX_RECORDING_BYTES` and `LONGEST_MS`, 4 GiB hold all."""
WAITING_MESSAGES = 8
_CHUNK_MS = 80
_BLOCK_BYTES = 1 << 16
_DECODERS = 2
# A playlist could make ffmpeg open any address in it: only containers are allowed.
_KNOWN = "aac,aiff,amr,asf,avi,caf,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,wav"
_CONTAINERS = ("-format_whitelist", _KNOWN)
_FROM_FILE = ("-protocol_whitelist", "file", *_CONTAINERS)
_FROM_PIPE = ("-protocol_whitelist", "pipe", *_CONTAINERS)


def recording_route(door: Door) -> Route:
    """Answer an uploaded recording with its sound: raw 16-bit PCM, 16 kHz, one channel."""
    free = asyncio.Semaphore(_DECODERS)
    places = asyncio.Semaphore(MOST_AT_ONCE)

    async def decode(recording: IO[bytes], sound: IO[bytes]) -> None:
        async with free:
            await _decode(recording, sound)

    async def answer(request: Request) -> Response:
        door.gatekeeper.check_origin(request)
        admission = door.gatekeeper.admit(shown_token(request), "speak")
        with ExitStack() as held:
            held.enter_context(door.counted())
            if places.locked():
                raise SessionLimitError(
                    f"{MOST_AT_ONCE} recordings are being read, all that are allowed at once",
                    retry_after_ms=RETRY_MS,
                )
            await places.acquire()
            held.callback(places.release)
            # A caller that may not translate may not decode either.
            await door.client.with_token(admission.server_token).list_models()
            try:
                # Unnamed files: a gateway that is killed leaves none behind.
                sound = held.enter_context(tempfile.TemporaryFile())
                with tempfile.TemporaryFile() as recording:
                    await _receive(request, recording, door.settings)
                    await unless_gone(request, decode(recording, sound))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                _LOG.warning("a recording could not be kept: %s", error.strerror)
                raise NotReadyError(
                    "the gateway has no room for this recording just now", retry_after_ms=RETRY_MS
                ) from error
            return _SoundAnswer(sound, held.pop_all(), door.settings.write_timeout_ms / 1000)

    return Route("/v1/audio", answer, methods=["POST"])


async def _receive(request: Request, recording: IO[bytes], settings: GatewaySettings) -> None:
    async for block in body_of(request, settings.idle_timeout_ms):
        recording.write(block)
        if recording.tell() > settings.max_recording_bytes:
            raise InvalidAudioError(
                f"the recording has more than {settings.max_recording_bytes} bytes, all that "
                "are allowed"
            )


async def _decode(recording: IO[bytes], sound: IO[bytes]) -> None:
    try:
        recording.seek(0)
        await to_its_end(asyncio.to_thread(probe_file, STDIN_PATH, _FROM_FILE, recording))
        recording.seek(0)
        source = FfmpegAudio(f"file:{STDIN_PATH}", DECODED, "the recording", _FROM_FILE, recording)
        async with aclosing(source.chunks(_CHUNK_MS)) as chunks:
            async for chunk in chunks:
                sound.write(chunk)
                _check_length(sound.tell())
    except AudioSourceError as error:
        raise InvalidAudioError(error.message.replace(STDIN_PATH, "the recording")) from error


def _check_length(decoded_bytes: int) -> None:
    if DECODED.duration_ms(decoded_bytes) > LONGEST_MS:
        raise InvalidAudioError(f"the recording is longer than {LONGEST_MS // 3_600_000} hours")


class _SoundAnswer(Response):
    """A file as an answer; a caller that does not read it is dropped.

    Args:
        held: what to release once it is sent.
    """

    # Not audio/L16, whose bytes come in the other order (RFC 3551).
    media_type = "audio/pcm;rate=16000"

    def __init__(self, sound: IO[bytes], held: ExitStack, write_timeout_s: float) -> None:
        super().__init__(headers={"Content-Length": str(sound.seek(0, 2))})
        self._sound = sound
        self._held = held
        self._write_timeout_s = write_timeout_s

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.ensure_future(wait_until_gone(receive))
        try:
            # If the caller does not read, or the gateway is going away, the short body shows it.
            with suppress(TimeoutError, NotReadyError), self._held:
                headers = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **headers})
                self._sound.seek(0)
                has_more = True
                while has_more and not leaving.done():
                    block = self._sound.read(_BLOCK_BYTES)
                    has_more = bool(block)
                    async with asyncio.timeout(self._write_timeout_s):
                        body = {"type": "http.response.body", "body": block, "more_body": has_more}
                        await send(body)
                    await asyncio.sleep(0)  # so that a caller's end is noticed
        finally:
            leaving.cancel()


class ContainerAudio:
    """Takes a container's bytes in a speaker's place, and gives the speaker the decoded sound."""

    def __init__(self, speaker: Speaker, audio: AudioFormat) -> None:
        self._speaker = speaker
        self._audio = audio
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MESSAGES)
        self._came = False
        self.has_ended = False

    @property
    def started(self) -> asyncio.Event:
        return self._speaker.started

    async def send(self, content: bytes | TranslationUpdate) -> None:
        if self.has_ended:
            raise OutOfOrderError("audio came after the end")
        if isinstance(content, bytes):
            await self._messages.put(content)
        elif not self._speaker.has_ended:
            await self._speaker.send(content)

    async def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            await self._messages.put(None)

    async def run(self) -> None:
        """Decode until the container ends, then end the speaker.

        Starts with the session: a caller that may not translate may not decode either.
        """
        await self._speaker.started.wait()
        heard, fault = False, None
        source = FfmpegAudio(self._bytes(), self._audio, "the container", _FROM_PIPE)
        try:
            async with aclosing(source.chunks(_CHUNK_MS)) as chunks:
                async for chunk in chunks:
                    heard = True
                    await self._speaker.send(chunk)
        except AudioSourceError as error:
            fault = InvalidAudioError(error.message)
        if self._came and not heard:
            text = "the container has no sound that can be read as it comes"
            raise fault or InvalidAudioError(text)
        await self._speaker.end(fault if heard else None)

    async def _bytes(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            self._came = True
            yield message
