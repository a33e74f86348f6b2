"""Calls by Asterisk's AudioSocket, whose frames are written here as its documents give them."""

from __future__ import annotations

import asyncio
import socket
import struct
import uuid
from contextlib import asynccontextmanager
from functools import partial

import pytest

from earvoice.gateway.__main__ import listen
from earvoice.gateway.audiosocket import serve_call
from earvoice.gateway.settings import GatewaySettings
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    is_on,
    receive_all,
    run_gateway,
    speak,
    text_of,
)
from tests.until import PATIENCE_S, until

CALL = uuid.UUID("6f1b3d6e-2f7c-4b0a-9d0e-0123456789ab")
NAMED = (0x01, CALL.bytes)
SOUND = b"\1\0" * 160
HANG_UP = (0x00, b"")


def frame(kind, content=b""):
    return struct.pack(">BH", kind, len(content)) + content


@asynccontextmanager
async def dialled(service, **settings):
    """Give an open line, the gateway's address and its door."""
    async with serve(service) as server, run_gateway(server, **settings) as (address, door):
        calls = await asyncio.start_server(partial(serve_call, door), "127.0.0.1", 0)
        host, port = calls.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            yield (reader, writer), address, door
        finally:
            writer.close()
            calls.close()


class Lingering(ScriptedService):
    """Ends no session before it may."""

    def __init__(self, words):
        super().__init__(words)
        self.may_end = asyncio.Event()

    async def _play(self, request_iterator):
        async for response in super()._play(request_iterator):
            if response.HasField("end_of_utterance"):
                await self.may_end.wait()
            yield response


async def hear(address):
    async with speak(address, f"/v1/streams/{CALL}") as websocket:
        return await receive_all(websocket)


@pytest.mark.parametrize(("kind", "rate_hz"), [(0x10, 8_000), (0x12, 16_000), (0x16, 48_000)])
async def test_a_call_is_read_under_its_uuid(kind, rate_hz):
    """At the rate that its frames say, in the languages of the settings."""
    service = ScriptedService([" Guten", " Tag"])
    async with dialled(service, audiosocket_languages=("de", "es")) as ((_, writer), address, _):
        writer.write(frame(*NAMED) + frame(0x03, b"5") + frame(kind, SOUND))
        await until(lambda: len(service.audio) == 2)
        reading = asyncio.create_task(hear(address))
        writer.write(frame(kind, SOUND) + frame(0x03, b"#") + frame(*HANG_UP))
        heard = await reading
    assert {config.sample_rate_hertz for config in service.configs} == {rate_hz}
    assert sorted(config.target_language_codes[0] for config in service.configs) == ["de", "es"]
    assert b"".join(service.audio) == 4 * SOUND
    lines = {line["language"]: line["text"] for line in heard[0]["lines"]}
    for language in ("de", "es"):
        assert f"{lines.get(language, '')} {text_of(heard, language)}".strip() == "Guten Tag"
    assert heard[-1] == {"type": "end"}


async def test_a_line_that_breaks_is_heard_to_the_end():
    """In mid-frame; what came before is translated."""
    service = ScriptedService([" Guten", " Tag"])
    async with dialled(service) as ((_, writer), address, door):
        writer.write(frame(*NAMED) + frame(0x10, SOUND))
        await until(lambda: service.audio)
        writer.write(frame(0x10, SOUND)[:100])
        writer.close()
        await until(lambda: door.directory.find(str(CALL)).is_over)
        heard = await hear(address)
    assert heard[0]["lines"][0]["text"] == "Guten Tag"


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([(0x10, SOUND)], "before the call's UUID"),
        ([(0x01, b"short")], "the call's UUID has 5 bytes; allowed: 16"),
        ([NAMED, (0x20, SOUND)], "kind 0x20"),
        ([NAMED, (0x10, SOUND), (0x12, SOUND)], "kind 0x12"),
    ],
)
async def test_what_is_wrong_ends_the_call_and_is_logged(caplog, frames, told):
    """Asterisk takes no messages: its dialplan goes on once the connection is closed."""
    async with dialled(ScriptedService()) as ((reader, writer), _, _):
        writer.write(b"".join(frame(*each) for each in frames))
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
    causes = [getattr(record, "cause", "") for record in caplog.records]
    assert any(told in cause for cause in causes)


async def test_who_only_connects_or_says_nothing_is_no_fault(caplog):
    """A probe, or a caller who hangs up at once."""
    service = ScriptedService()
    async with dialled(service) as ((reader, writer), _, _):
        _, probe = await asyncio.open_connection(*writer.get_extra_info("peername"))
        probe.close()
        writer.write(frame(*NAMED) + frame(*HANG_UP))
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
    assert service.configs == []
    assert not [record for record in caplog.records if record.levelname != "INFO"]


async def test_a_port_that_is_taken_is_told_by_its_setting():
    """It is not that of the gateway itself."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = GatewaySettings(audiosocket_port=port)
        with pytest.raises(OSError, match="EARVOICE_GATEWAY_AUDIOSOCKET_PORT"):
            listen(settings, "audiosocket_port")


async def test_the_next_call_of_a_uuid_need_not_wait():
    """A dialplan may give all calls the same: the last words of one do not refuse the next."""
    service = Lingering([" Guten"])
    async with dialled(service) as ((_, writer), _, door):
        writer.write(frame(*NAMED) + frame(0x10, SOUND))
        await until(lambda: is_on(door, str(CALL)))
        writer.write(frame(*HANG_UP))
        await until(lambda: door.directory.find(str(CALL)).publication.is_left)
        before = door.directory.find(str(CALL))
        host, port = writer.get_extra_info("peername")
        reader, again = await asyncio.open_connection(host, port)
        again.write(frame(*NAMED) + frame(0x10, SOUND))
        await until(lambda: door.directory.find(str(CALL)) is not before)
        service.may_end.set()
        again.write(frame(*HANG_UP))
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        again.close()


async def test_silence_ends_a_call_with_its_last_words(caplog):
    """Nobody comes back to it, so readers do not wait for anybody either."""
    service = ScriptedService([" Guten", " Tag"])
    async with dialled(service, idle_timeout_ms=300) as ((_, writer), address, door):
        writer.write(frame(*NAMED) + frame(0x10, SOUND))
        await until(lambda: is_on(door, str(CALL)) and door.directory.find(str(CALL)).is_over)
        heard = await hear(address)
    assert heard[0]["lines"][0]["text"] == "Guten Tag"
    assert any("300 ms" in getattr(record, "cause", "") for record in caplog.records)
