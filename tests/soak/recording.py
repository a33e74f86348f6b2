"""A long recording made of short ones, and where each of them stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from tests.e2e.calling import RATE_HERTZ

SILENCE_S = 2.0
SUFFIXES = (".wav", ".flac")


@dataclass(frozen=True)
class Clip:
    """A recording at 16 kHz, mono."""

    name: str
    samples: np.ndarray


@dataclass(frozen=True)
class Placement:
    """A clip's interval in a long recording, in samples."""

    name: str
    start_sample: int
    end_sample: int


@dataclass(frozen=True)
class LongRecording:
    """Rounds of all clips, a silence after each."""

    audio: bytes
    round_samples: int
    placements: list[Placement]


def read_clips(folders: Sequence[Path]) -> list[Clip]:
    """Every recording of some folders, each once, in the order of their names."""
    paths = {path.name: path for folder in folders for path in sorted(folder.iterdir())}
    return [Clip(name, _samples(path)) for name, path in paths.items() if path.suffix in SUFFIXES]


def _samples(path: Path) -> np.ndarray:
    data, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = soxr.resample(data.mean(axis=1), rate, RATE_HERTZ)
    return (mono.clip(-1, 1) * 32767).astype("<i2")


def join(clips: Sequence[Clip], seconds: float) -> LongRecording:
    """Whole rounds of all clips, a multiple of three of them, at least so many seconds."""
    # A quiet line instead of digital silence, which no microphone gives.
    noise = np.random.default_rng(5).normal(0, 8, int(SILENCE_S * RATE_HERTZ)).astype("<i2")
    one_round = np.concatenate([part for clip in clips for part in (clip.samples, noise)])
    rounds = 3 * -(-int(seconds * RATE_HERTZ) // (3 * len(one_round)))
    placements, position = [], 0
    for _ in range(rounds):
        for clip in clips:
            end = position + len(clip.samples)
            placements.append(Placement(clip.name, position, end))
            position = end + len(noise)
    return LongRecording(np.tile(one_round, rounds).tobytes(), len(one_round), placements)
