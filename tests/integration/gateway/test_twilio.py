"""Telephone calls by Twilio Media Streams."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import httpx
import pytest
from twilio.request_validator import RequestValidator
from websockets.exceptions import ConnectionClosed

from earvoice.gateway.access import issue_token
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    receive_all,
    run_gateway,
    speak,
    text_of,
)
from tests.integration.gateway.twilio_call import (
    CALL_ID,
    FRAME_BYTES,
    PATH,
    TwilioCall,
)
from tests.until import until

BOTH = ("inbound", "outbound")
FRAME = b"\x2a" * FRAME_BYTES
SILENT = 0xFF
KEY = "k" * 32


async def read_transcript(address, **query):
    async with httpx.AsyncClient() as http:
        url = f"http://{address}/v1/streams/{CALL_ID}/transcript"
        answer = await http.get(url, params=query)
    return answer.raise_for_status().json()


async def test_both_people_are_heard_apart():
    """Sessions of their own; readers tell them by tag, and get one transcript of the call."""
    service = ScriptedService([" Guten", " Tag"])
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket, BOTH)
            await call.begin(to="de")
            await until(lambda: len(service.configs) == 2)
            async with speak(address, f"/v1/streams/{CALL_ID}") as reader:
                await call.say(FRAME, track="inbound")
                await call.press("5")
                await call.say(FRAME, track="outbound")
                await call.stop()
                heard = await receive_all(reader)
                assert await receive_all(websocket) == []
        transcript = await read_transcript(address)
        inbound = await read_transcript(address, language="de-x-inbound")
    assert {config.audio_encoding for config in service.configs} == {3}
    assert {config.sample_rate_hertz for config in service.configs} == {8000}
    assert text_of(heard, "de-x-inbound") == text_of(heard, "de-x-outbound") == "Guten Tag"
    assert (transcript["stream"], transcript["is_over"]) == (CALL_ID, True)
    assert sorted(line["language"] for line in transcript["lines"]) == [
        "de-x-inbound",
        "de-x-outbound",
    ]
    assert [line["text"] for line in inbound["lines"]] == ["Guten Tag"]


async def test_who_hangs_up_is_heard_to_the_end():
    """A line that breaks has no `stop`."""
    service = ScriptedService([" Guten", " Tag"])
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket)
            await call.begin(to="de", publish="desk")
            await until(lambda: service.configs)
            async with speak(address, "/v1/streams/desk") as reader:
                await call.say(FRAME)
                websocket.transport.abort()
                heard = await receive_all(reader)
    assert text_of(heard, "de-x-inbound") == "Guten Tag"
    assert heard[-1] == {"type": "end"}


async def test_what_does_not_come_is_silence():
    """Times are those of the call: a pause of a track, or one that is late, moves nothing."""
    service = ScriptedService()
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket, BOTH)
            await call.begin(to="de")
            await call.say(FRAME, timestamp_ms=0)
            await call.say(FRAME, timestamp_ms=3000)
            await call.say(FRAME, track="outbound", timestamp_ms=3000)
            await call.stop()
            await receive_all(websocket)
    sound = b"".join(service.audio)
    assert len(sound) == 2 * 8 * 3020
    assert len(sound.replace(bytes([SILENT]), b"")) == 3 * FRAME_BYTES


async def test_media_without_track_and_timestamp_goes_on_where_it_was():
    """As frameworks send it that imitate Twilio."""
    service = ScriptedService()
    async with serve(service) as server, run_gateway(server) as (address, _):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket)
            await call.begin(to="de")
            for _ in range(3):
                media = {"payload": base64.b64encode(FRAME).decode()}
                await websocket.send(json.dumps({"event": "media", "media": media}))
            await call.stop()
            await receive_all(websocket)
    assert b"".join(service.audio) == 3 * FRAME


async def test_calls_are_signed_where_the_account_is_known():
    """Twilio's own package signs; other signatures, and none, are refused."""
    signer = RequestValidator("the account's token")
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, twilio_auth_token="the account's token") as (address, _),
    ):
        right = signer.compute_signature(f"wss://{address}{PATH}", {})
        wrong = signer.compute_signature(f"wss://elsewhere{PATH}", {})
        for headers in ({"X-Twilio-Signature": wrong}, {}, {"X-Twilio-Signature": "ö"}):
            async with speak(address, PATH, additional_headers=headers) as websocket:
                with pytest.raises(ConnectionClosed, match="has not signed"):
                    await websocket.recv()
        signed = {"X-Twilio-Signature": right}
        async with speak(address, PATH, additional_headers=signed) as websocket:
            call = TwilioCall(websocket)
            await call.begin(to="de")
            await call.stop()
            assert await receive_all(websocket) == []
        assert (await read_transcript(address))["is_over"]


async def test_a_call_shows_its_token_as_a_parameter():
    """A `<Stream>`'s address has no query, so the gateway's own token comes with the start."""
    hour = timedelta(hours=1)
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, token_key=KEY) as (address, _),
    ):
        for token, told in (
            (issue_token(KEY, "read", CALL_ID, hour), "scope 'speak'"),
            (issue_token(KEY, "speak", "other", hour), "'other'"),
        ):
            async with speak(address, PATH) as websocket:
                await TwilioCall(websocket).begin(to="de", access_token=token)
                with pytest.raises(ConnectionClosed, match=told):
                    await websocket.recv()
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket)
            await call.begin(to="de", access_token=issue_token(KEY, "speak", CALL_ID, hour))
            await call.stop()
            assert await receive_all(websocket) == []


@pytest.mark.parametrize(
    ("begin", "media", "told"),
    [
        ({"to": ""}, {}, "customParameters.to"),
        ({"to": ",".join(f"{n}" for n in range(17))}, {}, "customParameters.to"),
        ({"publish": "no name"}, {}, "customParameters.publish"),
        ({"media_format": {"encoding": "audio/opus"}}, {}, "mediaFormat"),
        ({}, {"track": "sideways"}, "media.track"),
        ({}, {"payload": "ö"}, "media"),
        ({}, {"timestamp": "soon"}, "media"),
        ({}, {"timestamp": "3600000"}, "media.timestamp"),
    ],
)
async def test_what_is_wrong_closes_the_call_with_its_name(caplog, begin, media, told):
    """Twilio takes no messages that tell errors: its closing has the reason, and so has our log."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket)
            await call.begin(**{"to": "de", **begin})
            with pytest.raises(ConnectionClosed, match=told) as closed:
                await call.say(FRAME, **media)
                await websocket.recv()
    assert closed.value.rcvd.code == 1008
    assert told in " ".join(getattr(record, "cause", "") for record in caplog.records)


async def test_the_first_message_is_the_start():
    """What else comes is refused by its name."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address, PATH) as websocket:
            await TwilioCall(websocket).stop()
            with pytest.raises(ConnectionClosed, match="event = 'stop'"):
                await websocket.recv()
