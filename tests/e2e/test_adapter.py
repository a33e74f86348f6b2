"""The field's tools wait for each piece of audio: they get the words and delays of a stream."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
import soundfile

from earvoice.adapter.blocking_session import BlockingConnection
from earvoice.adapter.tool_text import choose_session
from earvoice.client.audio import send_fast
from earvoice.client.event import Committed
from earvoice.client.translation_client import connect
from earvoice.runtime.audio_format import AudioFormat
from tests.e2e.running import Running
from tests.e2e.test_evaluate import RECORDING

pytestmark = pytest.mark.torch

SEGMENT_MS = 800


def streamed(address, options, audio):
    async def stream():
        async with (
            connect(address) as client,
            aclosing(client.translate(send_fast([audio]), options)) as events,
        ):
            return [event async for event in events]

    events = asyncio.run(stream())
    return [
        (word.text, word.delay_ms)
        for event in events
        if isinstance(event, Committed)
        for word in event.words
    ]


def test_words_come_with_the_piece_that_brings_them(services: Running):
    """With pieces as long as segments, the piece's end is the word's delay; pauses included."""
    samples, rate_hz = soundfile.read(RECORDING, dtype="float32")
    _, options = choose_session(f"--segment-ms {SEGMENT_MS}")
    options = replace(options, audio=AudioFormat("float32", rate_hz))
    piece_samples = rate_hz * SEGMENT_MS // 1000
    session = BlockingConnection(services.address).open(options)
    heard = []
    for start in range(0, len(samples), piece_samples):
        piece = samples[start : start + piece_samples]
        received_ms = 1000 * min(start + piece_samples, len(samples)) / rate_hz
        heard += [(word.text, received_ms) for word in session.push(piece.tobytes())]
    heard += [(word.text, received_ms) for word in session.finish()]
    expected = streamed(services.address, options, samples.tobytes())
    assert [text for text, _ in heard] == [text for text, _ in expected]
    # An utterance that begins off the pieces' grid has segments that end inside a piece.
    late_ms = [ours - theirs for (_, ours), (_, theirs) in zip(heard, expected, strict=True)]
    assert all(0 <= late < SEGMENT_MS for late in late_ms)
    assert late_ms.count(0) > 0
