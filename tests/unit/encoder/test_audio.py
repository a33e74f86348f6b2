"""Formats of the client's audio, and its samples at the model's rate."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.api.v1 import types_pb2
from earvoice.encoder.audio import Resampler, decode_audio, read_format
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.errors import InvalidAudioError, InvalidFieldError


def test_linear16_is_scaled_to_one():
    """Int16 samples come out as multiples of 1/32768, little-endian."""
    data = np.array([0, 1, -32768, 32767], "<i2").tobytes()
    decoded = decode_audio(AudioFormat("linear16", 16000), data)
    assert decoded.dtype == np.float32
    assert decoded.tolist() == [0.0, 1 / 32768, -1.0, 32767 / 32768]


def test_float32_passes_through():
    """Floats are taken as they are, a resampler's overshoot included."""
    values = np.array([0.0, -1.0, 0.25, 1.1], "<f4")
    decoded = decode_audio(AudioFormat("float32", 16000), values.tobytes())
    assert decoded.tolist() == values.tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 12000.0])
def test_floats_that_are_no_amplitudes_are_refused(value):
    """NaN, infinities and int16 values in floats are errors that name the sample."""
    data = np.array([0.0, value], "<f4").tobytes()
    with pytest.raises(InvalidAudioError, match="sample 1 of the message"):
        decode_audio(AudioFormat("float32", 16000), data)


@pytest.mark.parametrize(
    ("encoding", "codes", "amplitudes"),
    [
        # From G.711, tables 1a and 2a: quietest, loudest, and the first of a middle segment.
        ("mulaw", [0xFF, 0x7F, 0x80, 0x00, 0xEF], [0, 0, 32124, -32124, 132]),
        ("alaw", [0xD5, 0x55, 0xAA, 0x2A, 0xC5], [8, -8, 32256, -32256, 264]),
    ],
)
def test_g711_tables(encoding, codes, amplitudes):
    """G.711 codes give the amplitudes of the standard, on the int16 scale."""
    decoded = decode_audio(AudioFormat(encoding, 8000), bytes(codes))
    assert (decoded * 32768).tolist() == amplitudes


def test_g711_uses_every_code_once():
    """Both laws give 255 or 256 different amplitudes, symmetric around zero."""
    for encoding, distinct in (("mulaw", 255), ("alaw", 256)):
        decoded = decode_audio(AudioFormat(encoding, 8000), bytes(range(256)))
        assert len(set(decoded.tolist())) == distinct
        assert sorted(decoded) == sorted(-decoded)


def test_two_channels_are_mixed_down():
    """A stereo frame becomes the mean of its two samples."""
    data = np.array([100, 300, -200, 200], "<i2").tobytes()
    decoded = decode_audio(AudioFormat("linear16", 16000, 2), data)
    assert (decoded * 32768).tolist() == [200.0, 0.0]


def test_broken_frames_are_refused():
    """Half a sample, or one channel of two, is an error that says what a frame is."""
    with pytest.raises(InvalidAudioError, match="3 bytes of audio are not whole frames of 2"):
        decode_audio(AudioFormat("linear16", 16000), b"abc")
    with pytest.raises(InvalidAudioError, match="whole frames of 4"):
        decode_audio(AudioFormat("linear16", 16000, 2), b"ab")


WIRE_FIELDS = ("encoding", "sample_rate_hertz", "channel_count")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((0, 16000, 1), "audio_format.encoding"),
        ((9, 16000, 1), "audio_format.encoding"),
        ((1, 0, 1), "audio_format.sample_rate_hertz"),
        ((1, 7999, 1), "audio_format.sample_rate_hertz"),
        ((1, 48001, 1), "audio_format.sample_rate_hertz"),
        ((1, 16000, -1), "audio_format.channel_count"),
        ((1, 16000, 3), "audio_format.channel_count"),
    ],
)
def test_formats_out_of_range_name_the_field(values, field):
    """Each value outside its range is refused by the name it has on the wire."""
    with pytest.raises(InvalidFieldError) as error:
        read_format(types_pb2.AudioFormat(**dict(zip(WIRE_FIELDS, values, strict=True))))
    assert error.value.metadata["field"] == field


RATES_HZ = (8000, 11025, 22050, 32000, 44100, 47999, 48000)


def noise(count: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, count).astype(np.float32)


@settings(deadline=None)
@given(
    rate_hz=st.sampled_from(RATES_HZ),
    cuts=st.lists(st.integers(0, 3000), max_size=6),
)
def test_cuts_change_nothing(rate_hz, cuts):
    """However the signal arrives, the joined output is bitwise that of the whole signal."""
    samples = noise(3000)
    resampler = Resampler(rate_hz, 16000)
    pieces, done = [], 0
    for received in sorted(cuts):
        complete = resampler.complete_count(received)
        pieces.append(resampler.outputs(samples[:received], done, complete))
        done = complete
    total = resampler.total_count(len(samples))
    pieces.append(resampler.outputs(samples, done, total))
    assert np.array_equal(np.concatenate(pieces), resampler.outputs(samples, 0, total))


@settings(deadline=None)
@given(rate_hz=st.sampled_from(RATES_HZ), received=st.integers(0, 400))
def test_complete_outputs_do_not_see_the_future(rate_hz, received):
    """Outputs reported complete are the same whatever follows."""
    resampler = Resampler(rate_hz, 16000)
    samples = noise(800)
    complete = resampler.complete_count(received)
    assert 0 <= complete <= resampler.total_count(received)
    early = resampler.outputs(samples[:received], 0, complete)
    assert np.array_equal(early, resampler.outputs(samples, 0, complete))


@pytest.mark.parametrize(("rate_hz", "to_hz"), [(8, 16), (11, 16), (48, 16), (44, 16)])
def test_it_is_a_windowed_sinc(rate_hz, to_hz):
    """Every output is the sum over all samples that the class's formula says."""
    samples = noise(60).astype(np.float64)
    base = 0.99 * min(rate_hz, to_hz)

    def tap(time: float) -> float:
        scaled = time * base
        if abs(scaled) >= 6:
            return 0.0
        return np.sinc(scaled) * np.cos(np.pi * scaled / 12) ** 2 * base / rate_hz

    resampler = Resampler(rate_hz, to_hz)
    total = resampler.total_count(60)
    expected = [
        sum(x * tap(i / rate_hz - j / to_hz) for i, x in enumerate(samples)) for j in range(total)
    ]
    found = resampler.outputs(samples.astype(np.float32), 0, total)
    assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_a_tone_stays_a_tone(rate_hz):
    """A 440 Hz tone keeps frequency, phase and amplitude away from the signal's ends."""
    resampler = Resampler(rate_hz, 16000)
    tone = np.sin(2 * np.pi * 440 * np.arange(rate_hz // 2) / rate_hz).astype(np.float32)
    output = resampler.outputs(tone, 0, resampler.total_count(len(tone)))
    expected = np.sin(2 * np.pi * 440 * np.arange(len(output)) / 16000)
    assert np.abs(output - expected)[50:-50].max() < 2e-3


def test_the_models_own_rate_passes_through():
    """At 16 kHz every sample is complete at once and unchanged."""
    resampler = Resampler(16000, 16000)
    samples = noise(100)
    assert resampler.complete_count(100) == resampler.total_count(100) == 100
    assert np.array_equal(resampler.outputs(samples, 10, 90), samples[10:90])


def test_memory_is_bounded_for_awkward_rates():
    """Rates without a common divisor take a table of a few megabytes, not gigabytes."""
    assert Resampler(47999, 16000)._weights.nbytes < 8 * 2**20


def test_memory_is_bounded_for_long_signals():
    """Half a minute at once, as after a lost encoder, takes little more than its own samples."""
    resampler, samples = Resampler(44100, 16000), noise(30 * 44100)
    tracemalloc.start()
    output = resampler.outputs(samples, 0, resampler.total_count(len(samples)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 * output.nbytes + 16 * 2**20
