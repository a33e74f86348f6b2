from __future__ import annotations

import numpy as np
import pytest

from earvoice.encoder.audio_format import AudioEncoding, AudioFormat
from earvoice.runtime.errors import InvalidAudioError, InvalidFieldError


def test_linear16_is_scaled_to_one():
    """Int16 samples come out as multiples of 1/32768, little-endian."""
    data = np.array([0, 1, -32768, 32767], "<i2").tobytes()
    decoded = AudioFormat(AudioEncoding.LINEAR16, 16000).decode(data)
    assert decoded.dtype == np.float32
    assert decoded.tolist() == [0.0, 1 / 32768, -1.0, 32767 / 32768]


def test_float32_passes_through():
    """Floats are taken as they are, a resampler's overshoot included."""
    values = np.array([0.0, -1.0, 0.25, 1.1], "<f4")
    decoded = AudioFormat(AudioEncoding.FLOAT32, 16000).decode(values.tobytes())
    assert decoded.tolist() == values.tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 12000.0])
def test_floats_that_are_no_amplitudes_are_refused(value):
    """NaN, infinities and int16 values in floats are errors that name the sample."""
    data = np.array([0.0, value], "<f4").tobytes()
    with pytest.raises(InvalidAudioError, match="sample 1 of the message"):
        AudioFormat(AudioEncoding.FLOAT32, 16000).decode(data)


@pytest.mark.parametrize(
    ("encoding", "codes", "amplitudes"),
    [
        # From G.711, tables 1a and 2a: quietest, loudest, and the first of a middle segment.
        (AudioEncoding.MULAW, [0xFF, 0x7F, 0x80, 0x00, 0xEF], [0, 0, 32124, -32124, 132]),
        (AudioEncoding.ALAW, [0xD5, 0x55, 0xAA, 0x2A, 0xC5], [8, -8, 32256, -32256, 264]),
    ],
)
def test_g711_tables(encoding, codes, amplitudes):
    """G.711 codes give the amplitudes of the standard, on the int16 scale."""
    decoded = AudioFormat(encoding, 8000).decode(bytes(codes))
    assert (decoded * 32768).tolist() == amplitudes


def test_g711_uses_every_code_once():
    """Both laws give 255 or 256 different amplitudes, symmetric around zero."""
    for encoding, distinct in ((AudioEncoding.MULAW, 255), (AudioEncoding.ALAW, 256)):
        decoded = AudioFormat(encoding, 8000).decode(bytes(range(256)))
        assert len(set(decoded.tolist())) == distinct
        assert sorted(decoded) == sorted(-decoded)


def test_two_channels_are_mixed_down():
    """A stereo frame becomes the mean of its two samples."""
    data = np.array([100, 300, -200, 200], "<i2").tobytes()
    decoded = AudioFormat(AudioEncoding.LINEAR16, 16000, 2).decode(data)
    assert (decoded * 32768).tolist() == [200.0, 0.0]


def test_broken_frames_are_refused():
    """Half a sample, or one channel of two, is an error that says what a frame is."""
    with pytest.raises(InvalidAudioError, match="3 bytes of audio are not whole frames of 2"):
        AudioFormat(AudioEncoding.LINEAR16, 16000).decode(b"abc")
    with pytest.raises(InvalidAudioError, match="whole frames of 4"):
        AudioFormat(AudioEncoding.LINEAR16, 16000, 2).decode(b"ab")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((0, 16000, 1), "audio_format.encoding"),
        ((9, 16000, 1), "audio_format.encoding"),
        ((1, 0, 1), "audio_format.sample_rate_hertz"),
        ((1, 7999, 1), "audio_format.sample_rate_hertz"),
        ((1, 48001, 1), "audio_format.sample_rate_hertz"),
        ((1, 16000, 0), "audio_format.channel_count"),
        ((1, 16000, 3), "audio_format.channel_count"),
    ],
)
def test_formats_out_of_range_name_the_field(values, field):
    """Each value outside its range is refused by the name it has on the wire."""
    with pytest.raises(InvalidFieldError) as error:
        AudioFormat(*values)
    assert error.value.metadata["field"] == field
