"""Recordings of every kind."""

import os

import numpy as np
import pytest
import soundfile

from earvoice.client.audio_file import AudioFile, UnknownFormatError
from earvoice.client.errors import AudioSourceError
from earvoice.runtime.audio_format import AudioFormat


def tone(rate_hz, channels, seconds=0.5):
    """Return a quiet tone, float64 [frames, channels], a different one in each channel."""
    time_s = np.arange(int(rate_hz * seconds)) / rate_hz
    return np.stack([0.2 * np.sin(2 * np.pi * 200 * (i + 1) * time_s) for i in range(channels)], 1)


def write(folder, rate_hz, channels, *, name="a.wav", subtype="PCM_16"):
    path = folder / name
    soundfile.write(path, tone(rate_hz, channels), rate_hz, subtype=subtype)
    return path


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
@pytest.mark.parametrize(("rate_hz", "channels"), [(8_000, 1), (44_100, 2), (48_000, 1)])
def test_16_bit_recordings_are_passed_on_exactly(tmp_path, name, rate_hz, channels):
    """Rate, channels and every sample stay as they are, however large the chunks."""
    path = write(tmp_path, rate_hz, channels, name=name)
    expected = soundfile.read(path, dtype="int16")[0].tobytes()
    with AudioFile(path) as recording:
        assert recording.audio == AudioFormat("linear16", rate_hz, channels)
        assert recording.duration_ms == pytest.approx(500, abs=0.1)
        for chunk_ms in (80, 500):
            assert b"".join(recording.chunks(chunk_ms)) == expected


@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT", "ULAW"])
def test_other_sample_formats_become_floats(tmp_path, subtype):
    """Whatever is not 16-bit is sent as FLOAT32."""
    path = write(tmp_path, 16_000, 1, subtype=subtype)
    expected = soundfile.read(path, dtype="float32")[0].tobytes()
    with AudioFile(path) as recording:
        assert recording.audio == AudioFormat("float32", 16_000, 1)
        assert b"".join(recording.chunks(80)) == expected


def test_more_than_two_channels_are_mixed(tmp_path):
    """Five channels become their mean."""
    path = write(tmp_path, 16_000, 5)
    expected = soundfile.read(path, dtype="float32")[0].mean(axis=1)
    with AudioFile(path) as recording:
        assert recording.audio == AudioFormat("float32", 16_000, 1)
        mixed = np.frombuffer(b"".join(recording.chunks(80)), np.float32)
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


@pytest.mark.parametrize("rate_hz", [96_000, 6_000])
def test_other_rates_are_resampled(tmp_path, rate_hz):
    """A rate that no server takes becomes 16 kHz, in full length and the right pitch."""
    with AudioFile(write(tmp_path, rate_hz, 2)) as recording:
        assert recording.audio == AudioFormat("float32", 16_000, 2)
        samples = np.frombuffer(b"".join(recording.chunks(80)), np.float32).reshape(-1, 2)
    assert len(samples) == pytest.approx(8_000, abs=2)
    np.testing.assert_allclose(
        samples[400:-400], tone(16_000, 2)[400 : len(samples) - 400], atol=2e-3
    )


def test_an_empty_recording_has_no_chunks(tmp_path):
    """No samples are no error."""
    path = tmp_path / "empty.wav"
    soundfile.write(path, np.zeros(0), 16_000)
    with AudioFile(path) as recording:
        assert (list(recording.chunks(80)), recording.duration_ms) == ([], 0)


def test_what_is_no_recording_is_told(tmp_path):
    """The message names the file."""
    with pytest.raises(AudioSourceError, match=r"none\.wav: no such file"):
        AudioFile(tmp_path / "none.wav")
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(AudioSourceError, match=r"pipe\.wav: is not a regular file; .* reads pipes"):
        AudioFile(tmp_path / "pipe.wav")
    with pytest.raises(AudioSourceError, match=r"y\.wav: File name too long"):
        AudioFile(tmp_path / f"{'y' * 300}.wav")
    path = tmp_path / "text.wav"
    path.write_text("hello")
    with pytest.raises(AudioSourceError, match=r"text\.wav cannot be read as a recording"):
        AudioFile(path)


@pytest.mark.parametrize("kept_bytes", [0, 2001])
def test_a_wav_that_was_cut_is_read_as_far_as_it_goes(tmp_path, kept_bytes):
    """And then told, unless it was written into a pipe, whose length nobody knew."""
    path = write(tmp_path, 16_000, 1)
    whole = path.read_bytes()
    header, sound = whole[:44], whole[44 : 44 + kept_bytes]
    path.write_bytes(header + sound)
    chunks = AudioFile(path).chunks(80)
    fault = rf"a\.wav is damaged: it has {kept_bytes} of the {len(whole) - 44} bytes of sound"
    read = bytearray()
    with pytest.raises(AudioSourceError, match=fault):
        for chunk in chunks:
            read += chunk
    assert read == sound[: kept_bytes // 2 * 2]
    for unknown in (0x7FFF_F024, 0xFFFF_FFFF):
        path.write_bytes(header[:40] + unknown.to_bytes(4, "little") + sound)
        assert b"".join(AudioFile(path).chunks(80)) == read


def of_unknown_length(flac):
    """As an encoder leaves it that cannot go back to the header: 36 bits are 0."""
    return flac[:21] + bytes([flac[21] & 0xF0]) + bytes(4) + flac[26:]


def of_a_killed_recorder(wav):
    return wav[:40] + bytes(4) + wav[44:]


@pytest.mark.parametrize(
    ("name", "change", "subtype", "words"),
    [
        ("a.flac", of_unknown_length, "PCM_16", "does not say how long it is"),
        ("a.wav", of_a_killed_recorder, "PCM_16", "its header says that it is empty"),
        ("a.ogg", lambda ogg: ogg + ogg, "VORBIS", "holds several streams"),
    ],
)
def test_what_would_be_cut_short_is_left_to_others(tmp_path, name, change, subtype, words):
    """Without a word, libsndfile would lose the end of it, or all."""
    path = write(tmp_path, 16_000, 1, name=name, subtype=subtype)
    AudioFile(path).close()
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UnknownFormatError, match=words):
        AudioFile(path)
