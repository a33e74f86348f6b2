"""The native WebSocket: what a speaker sends, gets, and is refused."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.gateway.__main__ import _loop_faults
from earvoice.gateway.connection import Connection
from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.errors import SessionLimitError
from tests.integration.client.scripted_service import RoomForOne, ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    of_kind,
    receive_all,
    run_gateway,
    speak,
    start,
    text_of,
)
from tests.until import PATIENCE_S, until

CHUNK = b"\0\0" * 800


async def refusal(websocket):
    messages = await receive_all(websocket)
    return messages[-1], websocket.close_code


async def test_words_come_between_start_and_summary():
    """Audio in, events out, then the socket is closed as agreed."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            for _ in range(3):
                await websocket.send(CHUNK)
            await websocket.send(json.dumps({"type": "end"}))
            messages = await receive_all(websocket)
    kinds = [message["type"] for message in messages]
    assert (kinds[0], kinds[-1]) == ("started", "summary")
    assert text_of(messages) == "Guten Tag."
    assert b"".join(service.audio) == CHUNK * 3
    assert websocket.close_code == 1000


async def test_each_language_is_a_session_of_the_same_audio():
    """Two languages get the same bytes, and each event names its own."""
    service = ScriptedService([" Wort"])
    config = {"targetLanguageCodes": ["de", "es"]}
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(config=config))
            await websocket.send(CHUNK)
            await websocket.send(json.dumps({"type": "end"}))
            messages = await receive_all(websocket)
    assert sorted(c.target_language_codes[0] for c in service.configs) == ["de", "es"]
    assert service.audio == [CHUNK, CHUNK]
    assert {message["language"] for message in of_kind(messages, "summary")} == {"de", "es"}


async def test_no_words_are_told_while_another_language_may_be_refused():
    """So that to try again repeats nothing."""
    service = RoomForOne([" Wort"])
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(config={"targetLanguageCodes": ["de", "es"]}))
            await websocket.send(CHUNK)
            *messages, error = await receive_all(websocket)
    assert (error["reason"], error["advice"]) == ("SESSION_LIMIT", "retry")
    assert (of_kind(messages, "words"), service.audio) == ([], [])


async def test_audio_that_ends_inside_a_frame_is_told_when_every_language_has_ended():
    """Whichever is ready first: the others have their words, too."""
    config = {"targetLanguageCodes": ["de", "es"]}
    async with serve(ScriptedService([" Wort"])) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(config=config))
            await websocket.send(CHUNK + b"\0")
            await websocket.send(json.dumps({"type": "end"}))
            *messages, error = await receive_all(websocket)
    assert {message["language"] for message in of_kind(messages, "summary")} == {"de", "es"}
    assert (error["type"], error["reason"]) == ("error", "INVALID_AUDIO")
    assert "1 of 2 bytes" in error["message"]


async def test_an_update_reaches_the_session():
    """A change in mid-stream is a StreamingUpdate in proto3 JSON."""
    service = ScriptedService()
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.send(CHUNK)
            update = {"type": "update", "update": {"segmentDuration": "1.5s"}}
            await websocket.send(json.dumps(update))
            await websocket.send(CHUNK)
            await websocket.send(json.dumps({"type": "end"}))
            await receive_all(websocket)
    ((_, sent),) = service.updates
    assert sent.segment_duration.ToMilliseconds() == 1500


@pytest.mark.parametrize(
    ("first", "reason", "told"),
    [
        ("no json", "MALFORMED_MESSAGE", "not JSON"),
        ("[]", "MALFORMED_MESSAGE", "not an object"),
        ('{"type": "\\ud800"}', "MALFORMED_MESSAGE", "surrogates"),
        (
            start(config={"policy": {"edatt": {"alpha": 9}}}),
            "INVALID_FIELD",
            "config.policy.edatt.alpha = 9",
        ),
        (start(access_token="ä"), "UNAUTHENTICATED", "printable ASCII"),
        (start(config={"minConfidence": 10**400}), "MALFORMED_MESSAGE", "config: "),
        (start(config={"historySelection": {}}), "MALFORMED_MESSAGE", "history_selection: "),
        (
            start(config={"historySelection": {"lastSentence": False}}),
            "MALFORMED_MESSAGE",
            "history_selection: allowed: words, or last_sentence = true",
        ),
        (start(config={"resumeToken": "AAAA"}), "INVALID_FIELD", "places are told in resume"),
        ('{"type": NaN}', "MALFORMED_MESSAGE", "NaN is not a JSON number"),
        ("[" * 100_000, "MALFORMED_MESSAGE", "not JSON"),
        (b"audio", "OUT_OF_ORDER", "before the start message"),
        (json.dumps({"type": "begin"}), "INVALID_FIELD", "type = 'begin'"),
        (json.dumps({"type": "start", "configs": {}}), "INVALID_FIELD", "configs"),
        (json.dumps({"type": "start"}), "INVALID_FIELD", "config = None"),
        (start(config={"sampleRate": 1}), "MALFORMED_MESSAGE", "sampleRate"),
        (start(config={"sampleRateHertz": 1}), "INVALID_FIELD", "config.sampleRateHertz = 1"),
        (start(config={"audioChannelCount": 3}), "INVALID_FIELD", "config.audioChannelCount = 3"),
        (start(config={"audioEncoding": 0}), "INVALID_FIELD", "AUDIO_ENCODING_LINEAR16, "),
        (start(config={"catchUp": 9}), "INVALID_FIELD", "config.catchUp = 9"),
        (start(config={"commitUnit": "X"}), "MALFORMED_MESSAGE", "commitUnit"),
        (start(config={"targetLanguageCodes": []}), "INVALID_FIELD", "targetLanguageCodes"),
        (
            start(config={"targetLanguageCodes": [f"de-A{n:03}" for n in range(17)]}),
            "INVALID_FIELD",
            "allowed: 1 to 16, each once",
        ),
        (start(publish="a/b"), "INVALID_FIELD", "publish = 'a/b'"),
        (start(alive=1), "INVALID_FIELD", "alive = 1"),
        (start(resume={"fr": "AAAA"}), "INVALID_FIELD", "resume"),
        (start(resume={"de": "AAAA"}), "INVALID_FIELD", "resume.de"),
    ],
)
async def test_a_wrong_first_message_is_refused_by_name(first, reason, told):
    """The caller learns which field was wrong, and the next caller is served."""
    async with serve(ScriptedService([" gut"])) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(first)
            error, close_code = await refusal(websocket)
        async with speak(address) as other:
            await other.send(start())
            await other.send(json.dumps({"type": "end"}))
            assert text_of(await receive_all(other)) == "gut"
    assert (error["type"], error["reason"]) == ("error", reason)
    assert told in error["message"]
    assert close_code == 1008


@pytest.mark.parametrize(
    ("changes", "reason", "told"),
    [
        ({"update": {"policy": {"edatt": {"alpha": 9}}}}, "INVALID_FIELD", "update.policy."),
        ({"update": {"policy": {"edatt": {"alpha": 10**400}}}}, "MALFORMED_MESSAGE", "update: "),
        ({"update": {}, "id": 5}, "INVALID_FIELD", "update = 'id' is not allowed"),
        ({}, "INVALID_FIELD", "update = None"),
    ],
)
async def test_what_is_wrong_in_an_update_is_named(changes, reason, told):
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.send(json.dumps({"type": "update", **changes}))
            error, close_code = await refusal(websocket)
    assert (error["reason"], close_code) == (reason, 1008)
    assert told in error["message"]


async def test_audio_that_ends_inside_a_frame_is_the_caller_s_error():
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.send(b"\0\0\0")
            await websocket.send(json.dumps({"type": "end"}))
            error, _ = await refusal(websocket)
    assert (error["code"], error["reason"]) == ("INVALID_ARGUMENT", "INVALID_AUDIO")


async def test_text_that_is_no_command_ends_the_stream():
    """After the start only updates and the end are text."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.send(json.dumps({"type": "audio", "data": "…"}))
            error, _ = await refusal(websocket)
    assert "type = 'audio'" in error["message"]


async def test_audio_after_the_end_is_refused():
    """The end has been told."""
    gate = asyncio.Event()

    class Waiting(ScriptedService):
        async def _play(self, requests):
            async for response in super()._play(requests):
                if response.WhichOneof("message") == "summary":
                    await gate.wait()
                yield response

    async with serve(Waiting()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.send(json.dumps({"type": "end"}))
            await websocket.send(CHUNK)
            error, _ = await refusal(websocket)
            gate.set()
    assert error["reason"] == "OUT_OF_ORDER"


async def test_a_message_that_is_too_long_closes_its_own_socket_alone():
    """Ten megabytes at once: closed with the code for it, the other stream goes on."""
    service = ScriptedService([" gut"])
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as good, speak(address) as bad:
            await good.send(start())
            await bad.send(start())
            with pytest.raises(ConnectionClosed) as closed:
                await bad.send(b"\0" * 10_000_000)
                await asyncio.wait_for(bad.wait_closed(), PATIENCE_S)
                await bad.send(b"")
            await good.send(json.dumps({"type": "end"}))
            assert text_of(await receive_all(good)) == "gut"
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_a_refusal_of_the_service_is_told_with_its_reason():
    """What the policy service says is what the caller reads."""
    service = ScriptedService(failure=SessionLimitError("all taken", retry_after_ms=1500))
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            error, close_code = await refusal(websocket)
    assert (error["code"], error["reason"]) == ("RESOURCE_EXHAUSTED", "SESSION_LIMIT")
    assert error["retry_after_ms"] == 1500
    assert close_code == 1013


async def test_who_says_nothing_is_sent_away():
    """The start message has its time, and so has audio."""
    async with serve(ScriptedService()) as server:
        async with run_gateway(server, start_timeout_ms=100) as (address, door):
            async with speak(address) as silent:
                error, _ = await refusal(silent)
                assert (error["reason"], "start message" in error["message"]) == ("IDLE", True)
            assert door.socket_count == 0
        async with run_gateway(server, idle_timeout_ms=100) as (address, door):
            async with speak(address) as started:
                await started.send(start())
                error, close_code = await refusal(started)
                assert (error["reason"], "audio" in error["message"]) == ("IDLE", True)
                # Its laptop may have slept: it goes on where it was.
                assert (error["advice"], close_code) == ("resume", 1013)
            assert door.socket_count == 0


async def test_who_waits_for_the_session_to_begin_is_not_idle():
    """A policy service may take its time: the page sends nothing before it has begun."""
    gate = asyncio.Event()

    class Late(ScriptedService):
        async def _play(self, requests):
            await gate.wait()
            async for response in super()._play(requests):
                yield response

    limits = {"idle_timeout_ms": 100}
    async with serve(Late([" gut"])) as server, run_gateway(server, **limits) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(websocket.recv(), 0.5)
            await websocket.send(CHUNK)
            await websocket.send(json.dumps({"type": "end"}))
            gate.set()
            assert text_of(await receive_all(websocket)) == "gut"


async def test_who_waits_is_told_that_the_gateway_is_there():
    """Pages cannot see a ping, and a network may pass nothing on any more."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as websocket:
            await websocket.send(start(alive=True))
            async with asyncio.timeout(PATIENCE_S):
                assert json.loads(await websocket.recv())["type"] == "started"
                assert json.loads(await websocket.recv()) == {"type": "alive"}


async def test_a_caller_that_goes_ends_its_session():
    """The session of a lost socket is not left at the service."""
    service = ScriptedService()
    async with serve(service) as server, run_gateway(server) as (address, door):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.recv()
            websocket.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            while service.unfinished_sessions == 0 or door.socket_count:
                await asyncio.sleep(0.01)


async def test_a_caller_that_has_gone_has_gone_for_every_message():
    """Each language has words for it; only the first learns of it from the socket."""
    found = []

    async def endpoint(websocket):
        await websocket.accept()
        connection = Connection(websocket, GatewaySettings())
        for work in (
            connection.receive(None, "its end"),
            connection.send("1"),
            connection.send("2"),
        ):
            try:
                await work
            except Exception as error:  # noqa: BLE001 - looked at below
                found.append(error)

    def configure(config):
        config.app = Starlette(routes=[WebSocketRoute("/", endpoint)])
        return config

    async with run_gateway("127.0.0.1:9", configure) as (address, _):
        websocket = await speak(address, "/")
        websocket.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < 3:
                await asyncio.sleep(0.01)
    assert [type(error) for error in found] == [WebSocketDisconnect] * 3


async def test_a_foreign_page_is_refused_and_ours_is_not():
    """Browsers name the page that a script comes from."""
    async with serve(ScriptedService([" gut"])) as server:
        async with run_gateway(server, allowed_origins=("https://good.example",)) as (address, _):
            async with speak(address, origin="https://evil.example") as foreign:
                error, close_code = await refusal(foreign)
            assert (error["reason"], close_code) == ("PERMISSION_DENIED", 1008)
            for origin in (f"http://{address}", "https://good.example", None):
                async with speak(address, origin=origin) as websocket:
                    await websocket.send(start())
                    await websocket.send(json.dumps({"type": "end"}))
                    assert text_of(await receive_all(websocket)) == "gut"


async def test_a_page_whose_name_leads_to_this_machine_is_foreign():
    """Its origin is then that of the gateway it calls."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with httpx.AsyncClient(base_url=f"http://{address}") as http:
            for headers in ({}, {"Origin": "http://evil.example"}):
                headers["Host"] = "evil.example"
                for path in ("/v1/models", "/v1/streams/hall/captions.vtt"):
                    answer = await http.get(path, headers=headers)
                    assert answer.status_code == 403
            answer = await http.get("/v1/models", headers={"Host": "localhost:8080"})
            assert answer.status_code == 200


async def test_connections_beyond_the_limit_are_refused_with_a_time_to_come_back():
    """Those that are in stay in."""
    async with serve(ScriptedService([" gut"])) as server:
        async with run_gateway(server, max_sockets=1) as (address, door):
            async with speak(address) as first:
                await first.send(start())
                await first.recv()
                async with speak(address) as second:
                    error, close_code = await refusal(second)
                assert (error["reason"], close_code) == ("SESSION_LIMIT", 1013)
                assert error["retry_after_ms"] > 0
                await first.send(json.dumps({"type": "end"}))
                assert text_of(await receive_all(first)) == "gut"
            assert door.refused_count == 1


async def test_running_streams_end_before_the_gateway_does():
    """Draining lets nobody in, and who is in finishes."""
    async with serve(ScriptedService([" gut"])) as server, run_gateway(server) as (address, door):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.recv()
            draining = asyncio.create_task(door.drain())
            await asyncio.sleep(0)
            async with speak(address) as late:
                error, _ = await refusal(late)
            assert error["reason"] == "NOT_READY"
            await websocket.send(json.dumps({"type": "end"}))
            assert text_of(await receive_all(websocket)) == "gut"
        await asyncio.wait_for(draining, PATIENCE_S)


async def test_who_outlives_the_grace_is_told_to_come_again(caplog):
    """And the server has no fault to log."""
    settings = {"drain_grace_ms": 1}
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, **settings) as (address, door),
    ):
        async with speak(address) as websocket:
            await websocket.send(start())
            await websocket.recv()
            draining = asyncio.create_task(door.drain())
            *_, error = await receive_all(websocket)
            await asyncio.wait_for(draining, PATIENCE_S)
    assert (error["reason"], error["advice"]) == ("NOT_READY", "resume")
    assert websocket.close_code == 1013
    assert "ASGI" not in caplog.text


async def test_a_page_that_reads_is_let_go_in_good_order(caplog):
    """Its events end: it comes back by itself."""
    settings = {"drain_grace_ms": 1}
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, **settings) as (address, door),
    ):
        async with speak(address) as speaker, httpx.AsyncClient(timeout=PATIENCE_S) as http:
            await speaker.send(start(publish="hall"))
            await speaker.recv()
            async with http.stream("GET", f"http://{address}/v1/streams/hall/events") as events:
                lines = events.aiter_lines()
                assert "lines" in await anext(lines)
                draining = asyncio.create_task(door.drain())
                assert [line async for line in lines][-1] == ""
            await asyncio.wait_for(draining, PATIENCE_S)
    assert "ASGI" not in caplog.text


class Busy(ScriptedService):
    """Takes a message of audio, and no more before the test lets it."""

    def __init__(self):
        super().__init__()
        self.gate = asyncio.Event()

    async def _play(self, requests):
        async for response in super()._play(requests):
            yield response
            if self.audio:
                await self.gate.wait()


async def test_who_is_ahead_of_the_services_is_not_taken_for_gone():
    """Its pongs wait behind its audio, which nobody takes yet."""
    pinged_s = 0.05

    def impatient(config):
        config.ws_ping_interval = pinged_s
        config.ws_ping_timeout = config.ws_ping_timeout and pinged_s
        return config

    service = Busy()
    async with serve(service) as server, run_gateway(server, impatient) as (address, _):
        async with speak(address, ping_interval=None, compression=None) as websocket:
            await websocket.send(start())
            await websocket.recv()
            await websocket.send(CHUNK)
            await websocket.recv()
            speaking = asyncio.create_task(speak_fast(websocket, megabytes=64))
            # To wait longer could only show more.
            done, _ = await asyncio.wait({speaking}, timeout=20 * pinged_s)
            service.gate.set()
            await speaking
            messages = await receive_all(websocket)
    assert not done
    assert messages[-1]["type"] == "summary"
    assert sum(map(len, service.audio)) == 64_000_000 + len(CHUNK)


async def speak_fast(websocket, megabytes):
    for _ in range(megabytes):
        await websocket.send(bytes(1_000_000))
    await websocket.send(json.dumps({"type": "end"}))


def test_exhausted_descriptors_are_told_in_a_line(caplog):
    """However often the loop tells of them; its other faults are told as they are."""
    tell = _loop_faults()
    loop = asyncio.new_event_loop()
    exhausted = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for _ in range(1000):
        tell(loop, {"message": "socket.accept() out of system resource", "exception": exhausted})
    tell(loop, {"message": "another fault"})
    loop.close()
    assert [record.getMessage() for record in caplog.records] == [
        "connections wait: Too many open files",
        "another fault",
    ]


class Talkative(ScriptedService):
    """Tells more than the buffers of a connection hold."""

    MESSAGES = 120

    async def _play(self, requests):
        async for response in super()._play(requests):
            if response.WhichOneof("message") == "summary":
                for number in range(self.MESSAGES):
                    tail = {"text": "x" * 100_000, "utterance": number}
                    yield api.StreamingTranslateResponse(tentative=tail)
            yield response


@asynccontextmanager
async def unread(address, path, message):
    """A WebSocket that asks and then reads nothing."""
    # Compressed, all of the messages would fit into the way's buffers.
    connection = await connect(
        f"ws://{address}{path}", max_size=None, max_queue=1, compression=None
    )
    if message:
        await connection.send(message)
    try:
        yield connection
    finally:
        connection.transport.abort()


async def test_a_speaker_that_never_reads_is_sent_away_alone():
    """The other one is told everything."""
    service = Talkative()
    limits = {"write_timeout_ms": 500}
    async with serve(service) as server, run_gateway(server, **limits) as (address, door):
        async with unread(address, "/v1/translate", start()) as deaf:
            await deaf.send(json.dumps({"type": "end"}))
            async with speak(address) as good:
                await good.send(start())
                await good.send(json.dumps({"type": "end"}))
                messages = await receive_all(good)
            await until(lambda: not door.socket_count)
    assert messages[-1]["type"] == "summary"
    assert len(of_kind(messages, "tentative")) == Talkative.MESSAGES


@pytest.mark.parametrize("path", ["/v1/streams/hall", "/v1/streams/hall/events"])
async def test_a_reader_that_never_reads_is_sent_away_alone(path):
    """The speaker is told everything, and so is the other reader."""
    service = Talkative()
    limits = {"write_timeout_ms": 500}
    async with serve(service) as server, run_gateway(server, **limits) as (address, door):
        async with AsyncExitStack() as stack:
            speaker = await stack.enter_async_context(speak(address))
            await speaker.send(start(publish="hall"))
            await speaker.recv()
            if path.endswith("events"):
                host, _, port = address.partition(":")
                _, writer = await asyncio.open_connection(host, int(port), limit=1024)
                stack.callback(writer.close)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            else:
                await stack.enter_async_context(unread(address, path, None))
            reader = await stack.enter_async_context(speak(address, "/v1/streams/hall"))
            async with asyncio.timeout(PATIENCE_S):
                while door.directory.reader_count < 2:
                    await asyncio.sleep(0.01)
            await speaker.send(json.dumps({"type": "end"}))
            spoken, read = await asyncio.gather(receive_all(speaker), receive_all(reader))
            await until(lambda: not door.socket_count)
    assert spoken[-1]["type"] == "summary"
    for messages in (spoken, read):
        assert len(of_kind(messages, "tentative")) == Talkative.MESSAGES


async def test_an_address_that_is_none_is_not_found():
    """Neither a page nor a door; one that is called otherwise says how."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        with pytest.raises(InvalidStatus):
            async with speak(address, "/v1/nothing"):
                pass
        async with httpx.AsyncClient(base_url=f"http://{address}") as http:
            for answer in (await http.get("/v1/translate"), await http.post("/v1/translate")):
                assert answer.status_code == 404
                assert "a WebSocket is opened here" in answer.text
            for answer, allowed in (
                (await http.get("/v1/captions.vtt"), "POST"),
                (await http.put("/v1/audio"), "POST"),
                (await http.post("/healthz"), "GET, HEAD"),
                (await http.post("/index.html"), "GET, HEAD"),
            ):
                assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
