"""A long recording made of short ones, and where each of them stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from tests.e2e.calling import RATE_HERTZ
from tests.shared_data import ROOT, SHARED

SILENCE_S = 2.0
SUFFIXES = (".wav", ".flac")
# Every grid that an utterance lies on (voice activity 512, states 640, segments 12,800 samples)
# divides it, so that utterances of later rounds can begin where those of earlier ones did.
GRID_SAMPLES = 12_800


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
    rest = np.resize(noise, -len(one_round) % GRID_SAMPLES)
    one_round = np.concatenate([one_round, rest])
    rounds = 3 * -(-int(seconds * RATE_HERTZ) // (3 * len(one_round)))
    placements, position = [], 0
    for _ in range(rounds):
        for clip in clips:
            end = position + len(clip.samples)
            placements.append(Placement(clip.name, position, end))
            position = end + len(noise)
        position += len(rest)
    return LongRecording(np.tile(one_round, rounds).tobytes(), len(one_round), placements)


def cut(audio: bytes, count: int, seconds: int) -> list[bytes]:
    """As many stretches of a recording, each beginning elsewhere."""
    size, twice = 2 * RATE_HERTZ * seconds, audio + audio
    starts = [2 * (len(audio) // 2 * index // count) for index in range(count)]
    return [twice[start : start + size] for start in starts]


def sample_folders() -> list[Path]:
    """Where recordings are: the demo's folder, and the shared one where it is."""
    folders = [ROOT / "demo", SHARED / "data" / "speech" / "samples"]
    return [folder for folder in folders if folder.is_dir()]
