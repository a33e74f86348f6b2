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
from earvoice.gateway.messages import Fields
from earvoice.gateway.twilio import CallClock
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    is_on,
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
KEY = "k" * 32


async def read_transcript(address, **query):
    async with httpx.AsyncClient() as http:
        url = f"http://{address}/v1/streams/{CALL_ID}/transcript"
        answer = await http.get(url, params=query)
    return answer.raise_for_status().json()


async def test_both_people_are_heard_apart():
    """Sessions of their own; readers tell them by tag, and get one transcript of the call."""
    service = ScriptedService([" Guten", " Tag"])
    async with serve(service) as server, run_gateway(server) as (address, door):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket, BOTH)
            await call.begin(to="de")
            await until(lambda: is_on(door, CALL_ID))
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
    async with serve(service) as server, run_gateway(server) as (address, door):
        async with speak(address, PATH) as websocket:
            call = TwilioCall(websocket)
            await call.begin(to="de", publish="desk")
            await until(lambda: is_on(door, "desk"))
            async with speak(address, "/v1/streams/desk") as reader:
                await call.say(FRAME)
                websocket.transport.abort()
                heard = await receive_all(reader)
    assert text_of(heard, "de-x-inbound") == "Guten Tag"
    assert heard[-1] == {"type": "end"}


def taken(clock, track, timestamp, audio=FRAME):
    """What a message leads to: by track, whether it is silence, and how many milliseconds."""
    payload = base64.b64encode(audio).decode()
    media = {"track": track, "timestamp": timestamp, "payload": payload}
    sent = clock.take(Fields("media", media))
    return [(to, sound == b"\xff" * len(sound), len(sound) / 8) for to, sound in sent]


def test_what_does_not_come_is_silence():
    """Times are those of the call: a pause of a track, or one that is late, moves nothing."""
    clock = CallClock(BOTH)
    assert taken(clock, "inbound", "0") == [("inbound", False, 20)]
    assert taken(clock, "outbound", "5") == [("outbound", False, 20)]
    assert taken(clock, "inbound", "20") == [("inbound", False, 20)]
    assert taken(clock, "inbound", "2000") == [
        ("inbound", True, 1000),
        ("inbound", True, 960),
        ("outbound", True, 1000),
        ("outbound", True, 480),
        ("inbound", False, 20),
    ]
    # What comes too late of the other has become silence.
    assert taken(clock, "outbound", "1400", FRAME * 6) == [("outbound", False, 20)]
    assert taken(clock, "outbound", "1520") == [("outbound", False, 20)]
    assert taken(clock, "outbound", "100") == [("outbound", True, 0)]


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


@pytest.mark.parametrize("port", ["", ":443"])
async def test_calls_are_signed_where_the_account_is_known(port):
    """Twilio's own package signs, with or without the port; what else comes is refused."""
    signer, host = RequestValidator("the account's token"), "wss://captions.example"
    settings = {"twilio_auth_token": "the account's token", "twilio_address": f"{host}{PATH}"}
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, **settings) as (address, _),
    ):
        right = signer.compute_signature(f"{host}{port}{PATH}", {})
        wrong = signer.compute_signature(f"wss://{address}{PATH}", {})
        for headers in ({"X-Twilio-Signature": wrong}, {}, {"X-Twilio-Signature": "ö"}):
            async with speak(address, PATH, additional_headers=headers) as websocket:
                with pytest.raises(ConnectionClosed, match="is not signed"):
                    await websocket.recv()
        signed = {"X-Twilio-Signature": right}
        async with speak(address, PATH, additional_headers=signed) as websocket:
            call = TwilioCall(websocket)
            await call.begin(to=" de ")
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
        ({"access_token": 7}, {}, "not shown"),
        ({}, {"track": "sideways"}, "media.track"),
        ({}, {"payload": "ö"}, "media"),
        ({}, {"timestamp": "soon"}, "media"),
        ({}, {"timestamp": "3600000"}, "media.timestamp"),
        ({}, {"timestamp": "-" + "9" * 4000}, "media"),
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


async def test_a_call_begins_in_time():
    """Whatever is sent meanwhile: `connected` comes once."""
    async with (
        serve(ScriptedService()) as server,
        run_gateway(server, start_timeout_ms=60_000) as (address, _),
        speak(address, PATH) as websocket,
    ):
        for _ in range(2):
            await websocket.send(json.dumps({"event": "connected"}))
        with pytest.raises(ConnectionClosed, match="event = 'connected'"):
            await websocket.recv()
