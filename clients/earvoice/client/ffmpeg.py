"""Audio from whatever the installed ffmpeg reads: videos, containers, addresses of streams."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import suppress
from typing import IO

from earvoice.client.audio import whole_frames
from earvoice.client.errors import AudioSourceError
from earvoice.runtime.audio_format import AudioEncoding, AudioFormat

_SAMPLE_FORMATS: dict[AudioEncoding, str] = {
    "linear16": "s16le",
    "float32": "f32le",
    "mulaw": "mulaw",
    "alaw": "alaw",
}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SPEAKER = re.compile(r"\[[\w, ./-]+ @ 0x[0-9a-f]+\] ")
"""The component of ffmpeg that writes a line, and its memory address: noise in a message."""
_PROBE_TIMEOUT_S = 30.0
_TOLD_BYTES = 2_000
"""Bytes kept of ffmpeg's messages about an input; the last ones say most."""
STDIN_PATH = "/dev/stdin"
"""An open file without a name; unlike in a pipe, ffmpeg can seek in it."""
_LOG = logging.getLogger("earvoice.client")


def is_address(source: str) -> bool:
    """Say whether a source is an address, such as ``rtmp://…``, rather than a file."""
    return _ADDRESS.match(source) is not None


def find_program(name: str, source: str) -> str:
    """Return where ``ffmpeg`` or ``ffprobe`` is.

    Raises:
        AudioSourceError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise AudioSourceError(
            f"{source}: reading it takes ffmpeg, which is not installed (apt install ffmpeg, "
            "brew install ffmpeg)"
        )
    return path


def probe_file(
    path: str, options: Sequence[str] = (), stdin: IO[bytes] | None = None
) -> float | None:
    """Return how long a file's sound is in milliseconds; None if the file does not say.

    Args:
        options: input options of ffprobe.
        stdin: what `STDIN_PATH` stands for.

    Raises:
        AudioSourceError: ffmpeg is not installed, or finds no sound in the file.
    """
    command = [find_program("ffprobe", path), "-v", "error", *options, "-select_streams", "a:0"]
    command += ["-show_entries", "stream=codec_name:format=duration", "-of", "flat", f"file:{path}"]
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise AudioSourceError(f"{path}: ffprobe did not read it in {error.timeout:g} s") from error
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if done.returncode or "streams.stream.0.codec_name" not in told:
        reason = _last_words(done.stderr).replace(f"file:{path}: ", "")
        reason = reason or "there is no sound in it"
        raise AudioSourceError(f"{path} cannot be read as a recording: {reason}")
    duration = told["format.duration"].strip('"')
    return None if duration == "N/A" else 1000 * float(duration)


class FfmpegAudio:
    """The first sound track of a file, an address, or bytes as they come.

    Args:
        source: name for ffmpeg (``file:…`` or an address), or the bytes of a container.
        audio: format that ffmpeg converts it to.
        name: for errors.
        options: input options of ffmpeg.
        stdin: what `STDIN_PATH` stands for in the source's name.
    """

    def __init__(
        self,
        source: str | AsyncIterable[bytes],
        audio: AudioFormat,
        name: str,
        options: Sequence[str] = (),
        stdin: IO[bytes] | None = None,
    ) -> None:
        self._source = source
        self._audio = audio
        self._name = name
        self._options = options
        self._stdin = stdin or (subprocess.DEVNULL if isinstance(source, str) else subprocess.PIPE)
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the audio now; what was already decoded is still yielded."""
        self._is_stopped = True
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def chunks(self, chunk_ms: int) -> AsyncGenerator[bytes, None]:
        """Yield whole frames, at most ``chunk_ms`` at a time; ffmpeg reads no further ahead.

        Raises:
            AudioSourceError: ffmpeg is not installed, or cannot read the source.
        """
        program = find_program("ffmpeg", self._name)
        if self._is_stopped:
            return
        limit_bytes = self._audio.chunk_bytes(chunk_ms)
        process = self._process = await asyncio.create_subprocess_exec(
            *(program, "-nostdin", "-v", "error", *self._options),
            *("-i", self._source if isinstance(self._source, str) else "pipe:0"),
            *("-map", "0:a:0", "-ac", str(self._audio.channel_count)),
            *("-ar", str(self._audio.sample_rate_hz), "-flush_packets", "1"),
            *("-f", _SAMPLE_FORMATS[self._audio.encoding], "pipe:1"),
            stdin=self._stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=limit_bytes,
            start_new_session=True,  # ffmpeg must not get our Ctrl-C
        )
        if self._is_stopped:  # while it was being started
            self.stop()
        feeding = asyncio.create_task(self._feed(process))
        telling = asyncio.create_task(_read_last_words(process))
        try:
            async for chunk in whole_frames(_read(process, limit_bytes), self._audio):
                yield chunk
            status, told = await process.wait(), await telling
            if not feeding.done():
                feeding.cancel()
            await asyncio.wait({feeding})
            if not feeding.cancelled():
                feeding.result()
            self._judge(status, told)
        finally:
            if process.returncode is None:
                process.kill()
            feeding.cancel()
            await asyncio.wait({feeding, telling})
            # asyncio reports the end of a process only once its pipes are read to their ends.
            async for _ in _read(process, limit_bytes):
                pass
            await process.wait()

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        pipe = process.stdin
        if pipe is None or isinstance(self._source, str):
            return
        # If ffmpeg ends before the source does, its exit status says why.
        with suppress(BrokenPipeError, ConnectionResetError):
            try:
                async for block in self._source:
                    pipe.write(block)
                    await pipe.drain()
            finally:
                pipe.close()

    def _judge(self, status: int, told: str) -> None:
        if self._is_stopped:
            return
        if status:
            raise AudioSourceError(f"{self._name} cannot be read by ffmpeg: {told or status}")
        if told:
            _LOG.warning("%s: ffmpeg told: %s", self._name, told)


async def _read(process: asyncio.subprocess.Process, limit_bytes: int) -> AsyncIterator[bytes]:
    assert process.stdout is not None  # noqa: S101 - started with a pipe
    while block := await process.stdout.read(limit_bytes):
        yield block


async def _read_last_words(process: asyncio.subprocess.Process) -> str:
    """Read all that ffmpeg writes to standard error, and return the last part."""
    assert process.stderr is not None  # noqa: S101 - started with a pipe
    told = b""
    while block := await process.stderr.read(_TOLD_BYTES):
        told = (told + block)[-_TOLD_BYTES:]
    return _last_words(told.decode(errors="replace"))


def _last_words(told: str) -> str:
    lines = _SPEAKER.sub("", told).strip().splitlines()
    return "; ".join(line.strip() for line in lines[-2:])
