"""Recordings that browsers cannot read, and containers over the WebSocket: by the real ffmpeg."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from earvoice.client import AudioSourceError, ResumePoint
from earvoice.gateway import recordings
from tests.deploy.tool import program
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    receive_all,
    run_gateway,
    speak,
    start,
    text_of,
)
from tests.until import PATIENCE_S, until

TONE_HZ, SECONDS = 500, 2
TONE = f"sine=frequency={TONE_HZ}:duration={SECONDS}:sample_rate=48000"
# Chromium has no AC-3; an MP4's table of contents is at its end.
POINT = base64.b64encode(ResumePoint().to_bytes()).decode()
WORDS = {"audioEncoding": "AUDIO_ENCODING_WORDS", "sampleRateHertz": 4}
KINDS = {
    "mkv": ["-c:a", "ac3"],
    "mp4": ["-c:a", "aac"],
    "long.mp4": ["-c:a", "aac", "-af", "aloop=loop=29:size=96000"],
    "webm": ["-c:a", "libopus"],
}


@pytest.fixture
def make_recording(tmp_path):
    """Return a recording's path."""

    def make(kind):
        path = tmp_path / f"tone.{kind}"
        command = [program("ffmpeg"), "-nostdin", "-v", "error", "-f", "lavfi", "-i", TONE]
        subprocess.run([*command, *KINDS[kind], path], check=True)
        return path

    return make


def assert_tone(pcm):
    """All of it, and nothing else; codecs add less than a tenth of a second."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32)
    assert SECONDS - 0.1 < len(samples) / 16_000 < SECONDS + 0.2
    loudest = np.abs(np.fft.rfft(samples)).argmax() * 16_000 / len(samples)
    assert loudest == pytest.approx(TONE_HZ, abs=2)


@pytest.mark.parametrize("kind", ["mkv", "mp4"])
async def test_a_recording_is_answered_with_its_sound(make_recording, kind):
    """Whole, as raw PCM; nothing of it is kept."""
    content = make_recording(kind).read_bytes()
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, door):
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(f"http://{address}/v1/audio", content=content)
        assert door.socket_count == 0
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/pcm;rate=16000"
    assert_tone(answer.content)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no sound here\n" * 100, "the recording cannot be read as a recording"),
        (b"#EXTM3U\n#EXTINF:5,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n", "cannot be read"),
        (b"\0\0\0\x20ftypisom" + b"\1" * 4000, "a recording: moov atom not found; "),
        (b"\0" * 2_000_000, "more than 1000000 bytes"),
    ],
    ids=["text", "a playlist that names a file", "a damaged container", "too long"],
)
async def test_what_is_no_recording_is_refused(content, told):
    """By name, and never with a path of the gateway's, or where ffmpeg's parts lie in memory."""
    async with serve(ScriptedService()) as server:
        async with run_gateway(server, max_recording_bytes=1_000_000) as (address, _):
            async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
                answer = await http.post(f"http://{address}/v1/audio", content=content)
    error = answer.json()["error"]
    assert (answer.status_code, error["reason"]) == (400, "INVALID_AUDIO")
    assert told in error["message"]
    assert "/tmp" not in error["message"]
    assert "0x" not in error["message"]


@pytest.mark.parametrize("path", ["/v1/audio", "/v1/captions.vtt"])
async def test_who_goes_in_the_middle_of_an_upload_is_no_fault(path, caplog):
    """Of ours, to be logged; a page may be closed at any time."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100000\r\n"
        writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
        # The server says so once somebody asks for the body.
        async with asyncio.timeout(60):
            await reader.readuntil(b"100 Continue\r\n")
        writer.write(b"half")
        await writer.drain()
        writer.transport.abort()
    assert "ASGI" not in caplog.text


@pytest.mark.parametrize("path", ["/v1/audio", "/v1/captions.vtt"])
async def test_who_stops_in_the_middle_of_an_upload_is_sent_away(path):
    """Its place is for others."""
    limits = {"idle_timeout_ms": 100}
    async with serve(ScriptedService()) as server, run_gateway(server, **limits) as (address, door):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 99\r\n\r\n{{"
        writer.write(head.encode())
        async with asyncio.timeout(60):
            status = await reader.readline()
            while door.socket_count:
                await asyncio.sleep(0.01)
        writer.close()
    assert b" 408 " in status


async def test_an_upload_has_no_name_that_a_killed_gateway_would_leave(tmp_path, monkeypatch):
    """Its file is there, and goes with the process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def files_held():
        descriptors = Path("/proc/self/fd").iterdir()
        return [link for link in map(read_link, descriptors) if link.startswith(str(tmp_path))]

    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        _, writer = await asyncio.open_connection(*address.split(":"))
        head = f"POST /v1/audio HTTP/1.1\r\nHost: {address}\r\nContent-Length: 99999\r\n\r\n"
        writer.write(f"{head}half".encode())
        async with asyncio.timeout(60):
            while not files_held():
                await asyncio.sleep(0.01)
        assert not [*tmp_path.iterdir()]
        writer.close()
        async with asyncio.timeout(60):
            while files_held():
                await asyncio.sleep(0.01)


async def test_who_has_left_keeps_no_decoder(monkeypatch):
    """Two that wait for nobody would keep all others waiting."""
    began = 0

    async def decode(*_):
        nonlocal began
        began += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(recordings, "_decode", decode)
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, door):
        for count in range(1, 4):
            _, writer = await asyncio.open_connection(*address.split(":"))
            head = f"POST /v1/audio HTTP/1.1\r\nHost: {address}\r\nContent-Length: 4\r\n\r\n"
            writer.write(f"{head}RIFF".encode())
            await until(lambda: began >= count)  # noqa: B023 - called in this round
            writer.transport.abort()
            await until(lambda: not door.socket_count)


async def test_a_full_disk_is_told_as_what_passes(monkeypatch, caplog):
    """With a time to come back, as any limit."""
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: io.FileIO("/dev/full", "w+"))
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(f"http://{address}/v1/audio", content=bytes(100_000))
    assert (answer.status_code, answer.json()["error"]["advice"]) == (503, "retry")
    assert "No space left on device" in caplog.text


async def test_a_fault_of_ours_is_told_as_one(monkeypatch, caplog):
    """As JSON, like any failure; the log has the details."""
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: io.FileIO("/none/at/all", "w+"))
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(f"http://{address}/v1/audio", content=b"RIFF")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (500, "INTERNAL")
    assert "/none/at/all" not in answer.text
    assert "/none/at/all" in caplog.text


async def test_as_many_recordings_are_read_as_have_room(monkeypatch):
    """One more is refused before it is uploaded."""
    monkeypatch.setattr(recordings, "MOST_AT_ONCE", 1)
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, door):
        _, writer = await asyncio.open_connection(*address.split(":"))
        head = f"POST /v1/audio HTTP/1.1\r\nHost: {address}\r\nContent-Length: 99999\r\n\r\n"
        writer.write(head.encode())
        await until(lambda: door.socket_count)
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(f"http://{address}/v1/audio", content=b"RIFF")
        writer.close()
    assert (answer.status_code, answer.json()["error"]["reason"]) == (429, "SESSION_LIMIT")


def read_link(descriptor):
    """What a descriptor stands for; nothing where it was closed meanwhile."""
    with suppress(FileNotFoundError):
        return str(descriptor.readlink())
    return ""


async def test_a_recording_needs_the_token_that_speaking_needs(make_recording):
    """Nobody has the gateway compute for nothing."""
    content = make_recording("mkv").read_bytes()
    async with serve(ScriptedService()) as server:
        async with run_gateway(server, token_key="k" * 32) as (address, _):
            async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
                answer = await http.post(f"http://{address}/v1/audio", content=content)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (401, "UNAUTHENTICATED")


async def test_without_ffmpeg_the_caller_is_told_what_is_missing(make_recording, monkeypatch):
    """The gateway goes on."""
    content = make_recording("mkv").read_bytes()
    monkeypatch.setenv("PATH", "/nowhere")
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(f"http://{address}/v1/audio", content=content)
    assert answer.status_code == 400
    assert "takes ffmpeg, which is not installed" in answer.json()["error"]["message"]


async def test_a_container_is_spoken_as_it_comes(make_recording):
    """As a MediaRecorder cuts it: anywhere."""
    service = ScriptedService([" gut"])
    content = make_recording("webm").read_bytes()
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(container=True))
            for begin in range(0, len(content), 3_001):
                await websocket.send(content[begin : begin + 3_001])
            await websocket.send(json.dumps({"type": "end"}))
            messages = await receive_all(websocket)
    assert text_of(messages) == "gut"
    assert_tone(b"".join(service.audio))
    assert websocket.close_code == 1000


async def test_what_comes_before_a_fault_of_a_container_is_translated(monkeypatch):
    """An ffmpeg that ends in the middle, as when memory is short."""

    class Failing:
        def __init__(self, *_):
            pass

        async def chunks(self, _):
            yield bytes(3_200)
            raise AudioSourceError("the container cannot be read by ffmpeg: killed")

    monkeypatch.setattr("earvoice.gateway.recordings.FfmpegAudio", Failing)
    async with serve(ScriptedService([" gut"])) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(container=True))
            *told, error = await receive_all(websocket)
    assert text_of(told) == "gut"
    assert told[-1]["type"] == "summary"
    assert (error["type"], error["reason"]) == ("error", "INVALID_AUDIO")


async def test_noise_in_the_place_of_a_container_is_told():
    """And its ffmpeg has ended."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(container=True))
            await websocket.send(b"noise" * 1000)
            await websocket.send(json.dumps({"type": "end"}))
            *_, error = await receive_all(websocket)
    assert error["reason"] == "INVALID_AUDIO"
    assert "the container cannot be read by ffmpeg" in error["message"]


async def test_a_container_that_ends_before_it_begins_is_no_fault():
    """Who says nothing has nothing to be told."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(container=True))
            await websocket.send(json.dumps({"type": "end"}))
            *_, last = await receive_all(websocket)
    assert (last["type"], websocket.close_code) == ("summary", 1000)


async def test_a_container_with_its_index_at_the_end_is_told(make_recording):
    """A pipe cannot be read from its end: that is no stream in which nobody speaks."""
    content = make_recording("long.mp4").read_bytes()
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(container=True))
            await websocket.send(content)
            await websocket.send(json.dumps({"type": "end"}))
            *_, error = await receive_all(websocket)
    assert (error["type"], error["reason"]) == ("error", "INVALID_AUDIO")


async def test_a_container_whose_speaker_goes_leaves_no_process(make_recording):
    """In the middle of it."""
    service = ScriptedService()
    content = make_recording("webm").read_bytes()
    others = set(psutil.Process().children())
    async with serve(service) as server, run_gateway(server) as (address, door):
        async with speak(address) as websocket:
            await websocket.send(start(container=True))
            await websocket.send(content[: len(content) // 2])
            await websocket.recv()
            websocket.transport.abort()
        async with asyncio.timeout(60):
            while door.socket_count or not others.issuperset(psutil.Process().children()):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"container": "yes"}, "container = 'yes' is not allowed; allowed: true or false"),
        ({"container": True, "resume": {"de": POINT}}, "none with a container"),
        ({"container": True, "config": WORDS}, "container = 'true' is not allowed; allowed: false"),
    ],
)
async def test_a_container_holds_sound_and_has_no_place_to_resume_from(changes, told):
    """Its bytes are not its samples, and no words."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(**changes))
            (wrong,) = await receive_all(websocket)
    assert told in wrong["message"]
