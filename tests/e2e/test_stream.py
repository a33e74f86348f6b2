"""Real recordings through three processes: words out, and the laws of the wire."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
from collections.abc import AsyncIterator

import numpy as np
import pytest
import soundfile

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from tests.e2e.calling import (
    RATE_HERTZ,
    Outcome,
    Request,
    assert_well_formed,
    call,
    config,
    noise,
    pieces,
    requests,
    speech,
)

BYTES_OF_A_SECOND = 2 * RATE_HERTZ


@pytest.fixture(scope="module")
def plain(services) -> Outcome:
    """The demo's recording, sent at once."""
    return asyncio.run(call(services.address, requests(speech())))


def test_words_come_before_the_audio_ends(plain: Outcome):
    """The point of it all."""
    assert_well_formed(plain)
    assert plain.items[0].delay_samples < len(speech()) // 2
    assert {item.target_language_code for item in plain.items} == {"de"}


@pytest.mark.parametrize("unit", [pb.COMMIT_UNIT_WORD, pb.COMMIT_UNIT_TOKEN])
async def test_the_text_does_not_depend_on_how_audio_is_cut(services, unit):
    """EVERY_SEGMENT: messages of 2 bytes to 1 MiB give the same words with the same delays."""
    audio = speech()[: 5 * BYTES_OF_A_SECOND]
    drawn = random.Random(7)
    cuts = sorted({0, len(audio), *(2 * drawn.randrange(len(audio) // 2) for _ in range(40))})
    uneven = [Request(config=config(commit_unit=unit))]
    uneven += [Request(audio=audio[a:b]) for a, b in itertools.pairwise(cuts)]
    texts = [
        (await call(services.address, messages)).text
        for messages in (
            requests(audio, commit_unit=unit),
            requests(audio, size=len(audio), commit_unit=unit),
            uneven,
        )
    ]
    assert texts[0]
    assert texts[1] == texts[0] == texts[2]


async def test_the_text_does_not_depend_on_the_pace(services, plain: Outcome):
    """EVERY_SEGMENT paced faster than real time but in time equals all at once."""

    async def paced() -> AsyncIterator[Request]:
        yield Request(config=config())
        for piece in pieces(speech(), RATE_HERTZ // 5 * 2):
            yield Request(audio=piece)
            await asyncio.sleep(0.05)

    assert (await call(services.address, paced())).text == plain.text


async def test_ten_streams_at_once_are_each_as_alone(services):
    """Batching over sessions changes nothing that anybody can see."""
    starts = [index * BYTES_OF_A_SECOND // 2 for index in range(10)]
    clips = [speech()[start : start + 4 * BYTES_OF_A_SECOND] for start in starts]
    together = await asyncio.gather(*(call(services.address, requests(c)) for c in clips))
    for clip, outcome in zip(clips, together, strict=True):
        assert_well_formed(outcome)
        assert outcome.text == (await call(services.address, requests(clip))).text


async def test_stage_timings_add_up(services):
    """Live and true clock alike, for every word, within 1 ms; none is less than nothing."""
    for catch_up in (pb.CATCH_UP_MERGE, pb.CATCH_UP_EVERY_SEGMENT):
        changes = {"catch_up": catch_up, "enable_stage_timings": True}
        outcome = await call(services.address, requests(speech(), **changes))
        assert outcome.items
        for item in outcome.items:
            stages = item.stage_timings
            parts = [
                getattr(stages, field.name)
                for field in stages.DESCRIPTOR.fields
                if field.name not in ("total_ms", "audio_wait_ms")
            ]
            assert sum(parts) == pytest.approx(stages.total_ms, abs=1.0)
            assert min(*parts, stages.audio_wait_ms) >= -0.01


async def test_silence_says_nothing(services):
    """60 s of digital silence, and of a quiet line."""
    for audio in (bytes(60 * RATE_HERTZ * 2), noise(60, level=0.0005)):
        outcome = await call(services.address, requests(audio))
        assert_well_formed(outcome)
        assert outcome.items == []


async def test_transcript_and_interim_results_come_when_asked_for(services, plain: Outcome):
    """Both are off by default."""
    asked = await call(
        services.address,
        requests(speech(), enable_interim_results=True, enable_source_transcript=True),
    )
    assert plain.of("tentative") == []
    assert {e.source_transcript for e in plain.of("end_of_utterance")} == {""}
    assert any(e.source_transcript for e in asked.of("end_of_utterance"))
    assert asked.of("tentative")
    assert asked.text == plain.text


FORMATS = {
    "float32": (types_pb2.AUDIO_ENCODING_FLOAT32, 16_000, 1),
    "mulaw": (types_pb2.AUDIO_ENCODING_MULAW, 8000, 1),
    "alaw": (types_pb2.AUDIO_ENCODING_ALAW, 8000, 1),
    "stereo": (types_pb2.AUDIO_ENCODING_LINEAR16, 16_000, 2),
    "48k": (types_pb2.AUDIO_ENCODING_LINEAR16, 48_000, 1),
}


@pytest.mark.parametrize("name", FORMATS)
async def test_every_audio_format_is_taken(services, name: str):
    """Positions are in the client's own rate."""
    encoding, rate, channels = FORMATS[name]
    samples = np.frombuffer(speech(), "<i2")[: 4 * RATE_HERTZ].astype("float32") / 32768
    positions = np.arange(0, len(samples) - 1, RATE_HERTZ / rate)
    mono = np.interp(positions, np.arange(len(samples)), samples)
    audio = encoded(np.repeat(mono[:, None], channels, axis=1), name)
    outcome = await call(
        services.address,
        requests(
            audio, audio_encoding=encoding, sample_rate_hertz=rate, audio_channel_count=channels
        ),
    )
    assert_well_formed(outcome)
    assert outcome.of("summary")[0].audio_samples == len(mono)
    assert outcome.items


def encoded(frames: np.ndarray, name: str) -> bytes:
    """Frames in [-1, 1] as the format's bytes; G.711 by the library that also reads it."""
    if name == "float32":
        return frames.astype("<f4").tobytes()
    if name in ("mulaw", "alaw"):
        subtype = {"mulaw": "ULAW", "alaw": "ALAW"}[name]
        raw = io.BytesIO()
        soundfile.write(raw, frames, 8000, format="RAW", subtype=subtype)
        return raw.getvalue()
    return (frames * 32767).astype("<i2").tobytes()


async def test_every_recording_streams_through(services, samples):
    """44.1 kHz stereo, 8 kHz, 1.8 s and 45 s alike."""
    for path in sorted(samples.glob("*.*")):
        if path.suffix not in (".wav", ".flac"):
            continue
        frames, rate = soundfile.read(path, dtype="int16", always_2d=True)
        outcome = await call(
            services.address,
            requests(frames.tobytes(), sample_rate_hertz=rate, audio_channel_count=frames.shape[1]),
        )
        assert_well_formed(outcome)
        assert outcome.of("summary")[0].audio_samples == len(frames)
