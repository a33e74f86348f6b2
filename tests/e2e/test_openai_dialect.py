"""A person's voice through the OpenAI translations dialect, with the package's own client."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest
import soundfile
import soxr

from tests.e2e.calling import SPEECH

RATE_HZ = 24_000
CHUNK_SAMPLES = RATE_HZ // 10

pytestmark = pytest.mark.torch


async def test_a_reader_is_written_down(gateway: str):
    """Deltas make the captions of what was read."""
    sound, rate_hz = soundfile.read(SPEECH, dtype="int16")
    samples = soxr.resample(sound, rate_hz, RATE_HZ).astype("<i2")
    client = openai.AsyncOpenAI(api_key="none", websocket_base_url=f"ws://{gateway}/v1")
    async with client.realtime.translations.connect(model="any") as connection:
        await connection.session.update(session={"audio": {"output": {"language": "en"}}})
        for piece in np.split(samples, range(CHUNK_SAMPLES, len(samples), CHUNK_SAMPLES)):
            audio = base64.b64encode(piece.tobytes()).decode()
            await connection.session.input_audio_buffer.append(audio=audio)
        await connection.session.close()
        events = [event async for event in connection]
    assert events[-1].type == "session.closed"
    deltas = [e.delta for e in events if e.type == "session.output_transcript.delta"]
    assert "sorrow of his life" in "".join(deltas)
