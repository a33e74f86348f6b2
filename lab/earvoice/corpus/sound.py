"""Degradations of sound: telephone lines, noise, background voices, pace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

Sound = NDArray[np.float32]

SAMPLE_RATE_HZ = 16_000
LINE_RATE_HZ = 8_000
INT16_SCALE = 32_768
_BAND_HZ = (300.0, 3_400.0)
_EDGE_HZ = 60.0
_MU = 255.0
_STEPS = 127.5
WAVES_SHARE = 0.3
"""Share of noise whose loudness rises and falls."""
_PACES = (0.85, 1.2)
_GAIN_DB = (-15.0, 6.0)
_LEAST_CUT_SAMPLES = 16_000
_STEP, _QUIET = 320, 0.05
"""Frame length in samples; loudness of a pause, at most, relative to the sound's."""
_PAUSE_S, _BEFORE_PHRASE_S, _PHRASE_S = 0.24, 0.12, (0.8, 3.0)


def read_sound(path: Path) -> Sound:
    """Read a recording of any rate and channel count: [n] float32 at 16 kHz."""
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    resampled = soxr.resample(samples.mean(axis=1), rate_hz, SAMPLE_RATE_HZ, quality="HQ")
    return np.asarray(resampled, dtype=np.float32)


def as_int16(samples: Sound) -> NDArray[np.int16]:
    """Convert, which halves the memory."""
    return np.clip(np.round(samples * INT16_SCALE), -INT16_SCALE, INT16_SCALE - 1).astype(np.int16)


def over_telephone(samples: Sound) -> Sound:
    """Send over a telephone line: 300 to 3,400 Hz, 8 kHz, 8-bit µ-law (ITU-T G.711)."""
    line = _band(soxr.resample(samples, SAMPLE_RATE_HZ, LINE_RATE_HZ, quality="HQ"))
    line = np.clip(line, -1.0, 1.0)
    loudness = np.log1p(_MU * np.abs(line)) / np.log1p(_MU)
    coded = np.round(np.sign(line) * loudness * _STEPS) / _STEPS
    decoded = np.sign(coded) * np.expm1(np.abs(coded) * np.log1p(_MU)) / _MU
    heard = soxr.resample(decoded.astype(np.float32), LINE_RATE_HZ, SAMPLE_RATE_HZ, quality="HQ")
    return fitted(heard, len(samples))


def _band(line: Sound) -> Sound:
    frequencies = np.fft.rfftfreq(len(line), 1 / LINE_RATE_HZ)
    low, high = _BAND_HZ
    rising = 1 / (1 + np.exp(-(frequencies - low) / _EDGE_HZ))
    falling = 1 / (1 + np.exp((frequencies - high) / _EDGE_HZ))
    return np.asarray(
        np.fft.irfft(np.fft.rfft(line) * rising * falling, len(line)), dtype=np.float32
    )


def fitted(samples: Sound, count: int) -> Sound:
    """Cut or pad with silence to a number of samples."""
    out = np.zeros(count, np.float32)
    out[: len(samples)] = samples[:count]
    return out


def loudness(samples: Sound) -> float:
    """Root mean square of the louder half of the 20 ms frames."""
    frames = samples[: len(samples) // 320 * 320].reshape(-1, 320)
    if not len(frames):
        return 1e-6
    energies = np.square(frames).mean(1)
    return float(np.sqrt(energies[energies >= np.median(energies)].mean())) + 1e-6


def with_noise(samples: Sound, noise: Sound, snr_db: float) -> Sound:
    """Mix at a signal-to-noise ratio; the noise is repeated as needed."""
    repeated = np.resize(noise, len(samples))
    gain = loudness(samples) / loudness(repeated) / 10 ** (snr_db / 20)
    return np.asarray(samples + gain * repeated, dtype=np.float32)


def coloured_noise(count: int, generator: np.random.Generator) -> Sound:
    """Gaussian noise whose spectrum falls by 0 to 9 dB an octave; some rises and falls slowly."""
    spectrum = np.fft.rfft(generator.standard_normal(count))
    frequencies = np.maximum(np.fft.rfftfreq(count, 1 / SAMPLE_RATE_HZ), 50.0)
    noise = np.fft.irfft(spectrum * frequencies ** -generator.uniform(0.0, 1.5), count)
    if generator.random() < WAVES_SHARE:
        period_s = generator.uniform(0.3, 4.0)
        phase = generator.uniform(0, 2 * np.pi)
        time_s = np.arange(count) / SAMPLE_RATE_HZ
        noise = noise * (1.2 + np.sin(2 * np.pi * time_s / period_s + phase))
    return np.asarray(noise / (np.abs(noise).max() + 1e-9), dtype=np.float32)


def music(count: int, generator: np.random.Generator) -> Sound:
    """Chords with overtones, each struck and dying away: sound without speech."""
    out = np.zeros(count, np.float64)
    beat = int(SAMPLE_RATE_HZ * generator.uniform(0.2, 0.8))
    scale = np.array([0, 2, 4, 5, 7, 9, 11])
    for begin in range(0, count, beat):
        length = min(count - begin, 3 * beat)
        time_s = np.arange(length) / SAMPLE_RATE_HZ
        for _ in range(generator.integers(1, 4)):
            note = 110 * 2 ** ((generator.choice(scale) + 12 * generator.integers(0, 3)) / 12)
            tone = sum(np.sin(2 * np.pi * note * h * time_s) / h**1.3 for h in range(1, 6))
            out[begin : begin + length] += tone * np.exp(-time_s * generator.uniform(1, 6))
    return np.asarray(out / (np.abs(out).max() + 1e-9) * generator.uniform(0.1, 0.6), np.float32)


def worsened(
    samples: Sound,
    voices: list[Sound],
    generator: np.random.Generator,
    *,
    pace_share: float = 0.3,
    noise_share: float = 0.3,
    babble_share: float = 0.15,
    telephone_share: float = 0.25,
    least_snr_db: float = 4.0,
) -> Sound:
    """A clip as it may arrive: at another pace, with noise or voices, over a line, at any level.

    Args:
        voices: for babble in the background.
        least_snr_db: lower bound of the noise's SNR, at most 25.
    """
    if generator.random() < pace_share:
        pace = generator.uniform(*_PACES)
        samples = soxr.resample(samples, SAMPLE_RATE_HZ * pace, SAMPLE_RATE_HZ, quality="QQ")
    if generator.random() < noise_share:
        noise = coloured_noise(len(samples), generator)
        samples = with_noise(samples, noise, generator.uniform(least_snr_db, 25.0))
    if voices and generator.random() < babble_share:
        samples = with_noise(
            samples, babble(len(samples), voices, generator), generator.uniform(8.0, 25.0)
        )
    if generator.random() < telephone_share:
        samples = over_telephone(samples)
    gain = 10 ** (generator.uniform(*_GAIN_DB) / 20)
    return np.asarray(np.clip(samples * gain, -1, 1), dtype=np.float32)


def cut_short(samples: Sound, generator: np.random.Generator) -> Sound:
    """The beginning, as heard at some moment of a live stream; at least a second."""
    least = min(_LEAST_CUT_SAMPLES, len(samples))
    return samples[: int(generator.integers(least, len(samples) + 1))]


def phrase(samples: Sound, generator: np.random.Generator, unit: int) -> tuple[int, Sound]:
    """A short part after a pause: the sample where it begins, and [n] float32.

    Without a pause within the speech it begins at the start.

    Args:
        unit: it begins at a multiple of this many samples.
    """
    frames = samples[: len(samples) // _STEP * _STEP].reshape(-1, _STEP)
    is_quiet = np.square(frames).mean(1) < (_QUIET * loudness(samples)) ** 2
    count = int(_PAUSE_S * SAMPLE_RATE_HZ / _STEP)
    pauses = np.convolve(is_quiet, np.ones(count), "valid") == count
    ends = np.flatnonzero(pauses[:-1] & ~pauses[1:]) + count
    ends = ends[ends - count > is_quiet.argmin()]
    begin = 0
    if len(ends):
        speech = int(generator.choice(ends)) * _STEP
        begin = int(speech - _BEFORE_PHRASE_S * SAMPLE_RATE_HZ) // unit * unit
    length = int(generator.uniform(*_PHRASE_S) * SAMPLE_RATE_HZ)
    return begin, samples[begin : begin + length]


def babble(count: int, voices: list[Sound], generator: np.random.Generator) -> Sound:
    """Four to eight voices at once."""
    out = np.zeros(count, np.float32)
    for _ in range(generator.integers(4, 9)):
        voice = voices[generator.integers(len(voices))]
        out += np.resize(np.roll(voice, generator.integers(len(voice))), count) / loudness(voice)
    return np.asarray(out / np.abs(out).max() * 0.3, dtype=np.float32)
