"""A call of two people, by Twilio Media Streams, through the services."""

from __future__ import annotations

import io

import httpx
import pytest
import soundfile
import soxr
from websockets.asyncio.client import connect

from earvoice.runtime.settings import shipped_model_path
from tests.e2e.calling import SPEECH
from tests.integration.gateway.running_gateway import receive_all
from tests.integration.gateway.twilio_call import CALL_ID, FRAME_BYTES, FRAME_MS, PATH, TwilioCall

INAUGURAL = shipped_model_path().parents[1] / "demo" / "inaugural_1961.wav"
RATE_HZ = 8_000
SPOKEN_S = 8
"""The gateway takes audio that is ten seconds ahead of the call's clock, and we send at once."""

pytestmark = pytest.mark.torch


def over_a_line(path):
    """The first seconds of a recording as mu-law."""
    sound, rate_hz = soundfile.read(path, frames=SPOKEN_S * soundfile.info(path).samplerate)
    line = io.BytesIO()
    narrow = soxr.resample(sound, rate_hz, RATE_HZ)
    soundfile.write(line, narrow, RATE_HZ, format="RAW", subtype="ULAW")
    return line.getvalue()


async def test_two_people_of_a_call_are_written_down_apart(gateway: str):
    """Each in lines of their own, and both in one transcript, in the order of the call."""
    people = {"inbound": over_a_line(SPEECH), "outbound": over_a_line(INAUGURAL)}
    async with connect(f"ws://{gateway}{PATH}") as websocket:
        call = TwilioCall(websocket, tuple(people))
        await call.begin(to="en")
        for number in range(SPOKEN_S * 1000 // FRAME_MS):
            for track, line in people.items():
                frame = line[number * FRAME_BYTES :][:FRAME_BYTES]
                await call.say(frame, track=track, timestamp_ms=number * FRAME_MS)
        await call.stop()
        await receive_all(websocket)
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"http://{gateway}/v1/streams/{CALL_ID}/transcript")
    lines = answer.raise_for_status().json()["lines"]
    said = {
        track: " ".join(line["text"] for line in lines if line["language"] == f"en-x-{track}")
        for track in people
    }
    assert "sorrow of his life" in said["inbound"]
    assert "what your country can do for you" in said["outbound"].lower()
    # They speak at once: the lines of one do not all come before those of the other.
    assert all(0 <= line["start_ms"] < line["end_ms"] <= SPOKEN_S * 1000 for line in lines)
