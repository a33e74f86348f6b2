"""What the installed ffmpeg reads is translated: the command, against a scripted server."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import aclosing, contextmanager
from fcntl import ioctl
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import psutil
import pytest

from earvoice.client.errors import AudioSourceError
from earvoice.client.ffmpeg import FfmpegAudio, probe_file
from earvoice.runtime.audio_format import AudioFormat
from tests.deploy.tool import free_port, program
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.until import until

TONE_HZ = 500
SECONDS = 2
TONE = ["-f", "lavfi", "-i", f"sine=frequency={TONE_HZ}:duration={SECONDS}:sample_rate=48000"]
PICTURE = ["-f", "lavfi", "-i", f"testsrc=duration={SECONDS}:size=64x64:rate=5"]
# A sound track of its own kind in each; the M4A's table of contents is at its end.
KINDS = {
    "m4a": ["-c:a", "aac"],
    "mkv": ["-c:a", "libopus", "-c:v", "mpeg4"],
    "webm": ["-c:a", "libopus", "-c:v", "libvpx", "-cpu-used", "8"],
    "mp4": ["-c:a", "aac", "-ac", "2", "-c:v", "mpeg4"],
    "ts": ["-c:a", "mp2", "-c:v", "mpeg2video"],
}


def ffmpeg(*arguments) -> bytes:
    """Return what it writes into a pipe."""
    command = [program("ffmpeg"), "-nostdin", "-v", "error", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


@pytest.fixture
def make_recording(tmp_path):
    """Make a recording of a tone, with a picture where the kind has one."""

    def make(kind):
        path = tmp_path / f"tone.{kind}"
        picture = [] if kind == "m4a" else PICTURE
        ffmpeg(*TONE, *picture, *KINDS[kind], path)
        return path

    return make


@contextmanager
def sender(*arguments):
    """An ffmpeg that sends at the pace of its recording."""
    command = [program("ffmpeg"), "-nostdin", "-v", "error", "-re", *map(str, arguments)]
    with subprocess.Popen(command) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


async def translate(source, *options, content=None, file=None, environment=None, heard_bytes=None):
    """Translate a source; return the status, what was told and the audio that was sent."""
    service = ScriptedService([" gut"])
    async with serve(service) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "earvoice.cli", "translate", str(source)),
            *("--server", address, *options),
            stdin=subprocess.PIPE if file is None else file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        if heard_bytes is not None:
            await until(lambda: sum(map(len, service.audio)) >= heard_bytes)
            process.send_signal(signal.SIGINT)
        _, errors = await process.communicate(content)
    return process.returncode, errors.decode(), service


def assert_tone(service, rate_hz=16_000):
    """The whole tone was sent, and nothing else; codecs add less than a tenth of a second."""
    samples = np.frombuffer(b"".join(service.audio), "<i2").astype(np.float32)
    assert SECONDS - 0.1 < len(samples) / rate_hz < SECONDS + 0.2
    loudest = np.abs(np.fft.rfft(samples)).argmax() * rate_hz / len(samples)
    assert loudest == pytest.approx(TONE_HZ, abs=2)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_sound_of_a_file_is_translated(make_recording, kind):
    """At full speed, as every recording."""
    status, errors, service = await translate(make_recording(kind))
    assert (status, errors) == (0, "")
    assert_tone(service)
    (config,) = service.configs
    assert (config.sample_rate_hertz, config.audio_channel_count) == (16_000, 1)


@pytest.mark.parametrize("kind", ["flac", "wav", "ogg"])
async def test_what_a_file_does_not_say_of_its_length_is_heard(tmp_path, kind):
    """FLAC from a pipe, WAV of a recorder that was killed, Ogg of a radio that named its tracks."""
    path = tmp_path / f"tone.{kind}"
    if kind == "flac":
        path.write_bytes(ffmpeg(*TONE, "-f", "flac", "-"))
    elif kind == "wav":
        ffmpeg(*TONE, "-bitexact", path)
        content = path.read_bytes()
        path.write_bytes(content[:40] + struct.pack("<I", 0) + content[44:])
    else:
        tracks = []
        for begin in range(SECONDS):
            part = tmp_path / f"{begin}.ogg"
            ffmpeg("-ss", begin, "-t", 1, *TONE, "-c:a", "libvorbis", part)
            tracks.append(part.read_bytes())
        path.write_bytes(b"".join(tracks))
    status, _, service = await translate(path)
    assert status == 0
    assert_tone(service)


async def test_it_is_sent_as_if_spoken_now_where_that_is_asked_for(make_recording):
    """Short messages, as from a microphone."""
    status, _, service = await translate(make_recording("m4a"), "--realtime")
    assert status == 0
    assert max(map(len, service.audio)) == AudioFormat().chunk_bytes(80)
    assert_tone(service)


@pytest.mark.parametrize("kind", ["wav", "webm"])
@pytest.mark.parametrize("is_pipe", [True, False])
async def test_standard_input_may_be_a_recording(make_recording, tmp_path, kind, is_pipe):
    """A pipe's container is known by its first bytes; a file's is read as the file."""
    if kind == "wav":
        path = tmp_path / "tone.wav"
        ffmpeg(*TONE, "-ar", "16000", path)
    else:
        path = make_recording(kind)
    if is_pipe:
        status, errors, service = await translate("-", content=path.read_bytes())
    else:
        with path.open("rb") as file:
            status, errors, service = await translate("-", file=file)
    assert (status, errors) == (0, "")
    assert_tone(service)


@pytest.mark.parametrize("kind", ["adts", "au", "w64"])
async def test_a_pipe_may_hold_what_few_use(tmp_path, kind):
    """It was taken for raw audio: noise."""
    ffmpeg(*TONE, "-f", kind, tmp_path / "tone")
    status, errors, service = await translate("-", content=(tmp_path / "tone").read_bytes())
    assert (status, errors) == (0, "")
    assert_tone(service)


@pytest.mark.parametrize(("kind", "first_bytes"), [("wav", 2), ("ts", 376)])
async def test_a_container_may_come_in_pieces(tmp_path, kind, first_bytes):
    """The first alone does not tell what it is."""
    path = tmp_path / f"tone.{kind}"
    ffmpeg(*TONE, path)
    content = path.read_bytes()
    reading, writing = os.pipe()

    async def write():
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            pipe.write(content[:first_bytes])
            await until(lambda: not any(ioctl(pipe, termios.FIONREAD, bytes(4))))
            await asyncio.to_thread(pipe.write, content[first_bytes:])

    with os.fdopen(reading) as pipe:
        (status, errors, service), _ = await asyncio.gather(translate("-", file=pipe), write())
    assert (status, errors) == (0, "")
    assert_tone(service)


async def test_a_pipe_is_made_what_was_asked_for(make_recording):
    """`--rate` is then what ffmpeg makes of it."""
    content = make_recording("ts").read_bytes()
    status, _, service = await translate("-", "--rate", "8000", content=content)
    assert (status, service.configs[0].sample_rate_hertz) == (0, 8_000)
    assert_tone(service, 8_000)


async def bound(process: psutil.Process) -> None:
    """Whoever asks before somebody listens waits three seconds at most."""
    await until(process.net_connections)


async def test_an_address_is_read_as_it_comes_by_srt(make_recording):
    """A stream without an end, until Ctrl-C."""
    address = f"srt://127.0.0.1:{free_port()}"
    listen = ("-c", "copy", "-f", "mpegts", f"{address}?mode=listener")
    with sender("-stream_loop", "-1", "-i", make_recording("ts"), *listen) as process:
        await bound(process)
        status, errors, service = await translate(address, heard_bytes=SECONDS * 32_000)
    assert (status, errors) == (0, "")
    assert max(map(len, service.audio)) <= AudioFormat().chunk_bytes(80)
    assert service.unfinished_sessions == 0


async def test_an_address_is_read_as_it_comes_by_rtmp(make_recording):
    """As an encoder or a media server gives it."""
    address = f"rtmp://127.0.0.1:{free_port()}/live/hall"
    listen = ("-c", "copy", "-f", "flv", "-listen", "1", address)
    with sender("-i", make_recording("m4a"), *listen) as process:
        await bound(process)
        status, _, service = await translate(address)
    assert status == 0
    assert_tone(service)


async def test_a_playlist_is_read_over_http(make_recording, tmp_path):
    """HLS of a recording, at full speed."""
    hls = ["-hls_time", "1", "-hls_list_size", "0", tmp_path / "list.m3u8"]
    ffmpeg("-i", make_recording("m4a"), "-c", "copy", *hls)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/list.m3u8"
        status, errors, service = await translate(address, "--fast")
        server.shutdown()
    assert (status, errors) == (0, "")
    assert_tone(service)


async def test_what_even_ffmpeg_cannot_read_is_told(tmp_path):
    """Before anything is asked of the server, in a line."""
    path = tmp_path / "notes.txt"
    path.write_text("no sound here\n" * 100)
    status, errors, service = await translate(path)
    assert (status, service.configs) == (3, [])
    assert errors.startswith(f"earvoice: {path} cannot be read as a recording: ")
    assert errors.count("\n") == 1
    ffmpeg(*PICTURE, "-c:v", "mpeg4", tmp_path / "mute.mp4")
    _, errors, _ = await translate(tmp_path / "mute.mp4")
    assert errors.endswith("cannot be read as a recording: there is no sound in it\n")


async def test_an_address_that_nobody_serves_is_told():
    """With what ffmpeg says of it."""
    status, errors, _ = await translate(f"http://127.0.0.1:{free_port()}/none")
    assert status == 3
    assert "cannot be read by ffmpeg: " in errors
    assert "Connection refused" in errors


@pytest.mark.parametrize("source", ["tone.m4a", "rtmp://media.example/live"])
async def test_without_ffmpeg_the_error_says_what_to_install(make_recording, tmp_path, source):
    """And formats of our own need none."""
    path = make_recording("m4a") if source == "tone.m4a" else source
    nowhere = {"PATH": str(tmp_path / "empty")}
    status, errors, service = await translate(path, environment=nowhere)
    assert (status, service.configs) == (3, [])
    assert errors.startswith(f"earvoice: {path}: reading it takes ffmpeg, which is not installed")
    ffmpeg(*TONE, "-ar", "16000", tmp_path / "own.flac")
    status, _, service = await translate(tmp_path / "own.flac", environment=nowhere)
    assert status == 0
    assert_tone(service)


async def test_ffmpeg_reads_no_further_than_it_is_read(make_recording):
    """A source that never ends waits in its pipe, and stopping ends ffmpeg."""
    block = make_recording("ts").read_bytes()
    given = 0

    async def endless():
        nonlocal given
        while True:
            given += len(block)
            yield block

    others = set(psutil.Process().children())
    source = FfmpegAudio(endless(), AudioFormat(), "endless")
    chunks = source.chunks(80)
    async with asyncio.timeout(60):
        await anext(chunks)
        before = -1
        while before != given:  # until nothing moves any more
            before = given
            await asyncio.sleep(0.2)
        assert given < 4 << 20
        source.stop()
        rest = [chunk async for chunk in chunks]
    assert sum(map(len, rest)) < 4 << 20
    assert others.issuperset(psutil.Process().children())


async def test_who_leaves_ffmpeg_early_is_not_kept():
    """Though its pipe is full of sound that nobody wants any more."""
    others = set(psutil.Process().children())
    source = FfmpegAudio("anullsrc", AudioFormat(), "endless", ("-f", "lavfi"))
    async with asyncio.timeout(60), aclosing(source.chunks(80)) as chunks:
        await anext(chunks)
        (child,) = set(psutil.Process().children()) - others
        before = -1
        while before != (written := child.io_counters().write_chars):  # until nothing moves
            before = written
            await asyncio.sleep(0.2)
    assert others.issuperset(psutil.Process().children())


async def test_ffmpeg_may_be_stopped_while_it_is_started():
    """Nothing else would ever end the sound of an address that goes on and on."""
    others = set(psutil.Process().children())
    source = FfmpegAudio("anullsrc", AudioFormat(), "endless", ("-re", "-f", "lavfi"))

    async def read():
        async for _ in source.chunks(80):
            pass

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    source.stop()
    async with asyncio.timeout(60):
        await reading
    assert others.issuperset(psutil.Process().children())


async def test_a_failing_source_fails_its_reader(make_recording):
    """What the bytes' own source says outranks what ffmpeg makes of it."""
    block = make_recording("ts").read_bytes()

    async def broken():
        yield block
        raise AudioSourceError("the wire was cut")

    with pytest.raises(AudioSourceError, match="the wire was cut"):
        async for _ in FfmpegAudio(broken(), AudioFormat(), "broken").chunks(80):
            pass


def test_a_file_says_how_long_it_is(make_recording):
    assert probe_file(str(make_recording("m4a"))) == pytest.approx(1000 * SECONDS, abs=100)
