"""Runs of the papers' own code, read from the shared reference data."""

from __future__ import annotations

import gzip
import json
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

JOINED_FILES = 5
SAMPLES_PER_MS = 16
SHIFT_SAMPLES = 160
WINDOW_OVERLAP_SAMPLES = 240


@dataclass(frozen=True)
class Segment:
    """What the released agent decoded at one moment.

    Attributes:
        frames: feature frames of the utterance that it knew.
        hypothesis: prefix included, end of sentence last.
        score: as released; None where it was not recorded.
        attention_key: of its attention [S, hypothesis], where that was recorded.
    """

    frames: slice
    prefix: tuple[int, ...]
    hypothesis: tuple[int, ...]
    score: float | None
    attention_key: str | None


@dataclass(frozen=True)
class Utterance:
    """One audio, int16 at 16 kHz, and all that was decoded of it."""

    samples: np.ndarray
    segments: list[Segment]


def read_run(golden: Path, name: str) -> Iterator[Utterance]:
    with gzip.open(golden / "runs" / f"{name}.json.gz") as file:
        run = json.load(file)
    for instance in run["instances"]:
        samples = _samples(golden / "wav", Path(instance["wav"]).stem)
        segments = [
            Segment(
                frames,
                tuple(step["prefix"]),
                tuple(step["hypo"]),
                step.get("score"),
                step.get("attn_key"),
            )
            for step, frames in zip(instance["trace"], _frames(instance), strict=True)
            if "hypo" in step
        ]
        yield Utterance(samples, segments)


def _frames(instance: dict[str, Any]) -> list[slice]:
    """Frames known at each step: all so far, or where old audio is dropped, the newest."""
    trace = instance["trace"]
    if "events" not in instance:
        return [slice(step.get("src_frames")) for step in trace]
    heard = [round(event["step_ms"] * SAMPLES_PER_MS) for event in instance["events"]]
    ends = [(samples - WINDOW_OVERLAP_SAMPLES) // SHIFT_SAMPLES for samples in heard]
    return [slice(end - step["src_frames"], end) for step, end in zip(trace, ends, strict=True)]


def _samples(folder: Path, name: str) -> np.ndarray:
    """A file's, or for ``cc_5_n`` those of five files from number n on."""
    if not name.startswith("cc_"):
        return _read_wave(folder / f"{name}.wav")
    first = int(name.rpartition("_")[2])
    numbers = range(first, first + JOINED_FILES)
    return np.concatenate([_read_wave(folder / f"w{number:05d}.wav") for number in numbers])


def _read_wave(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
