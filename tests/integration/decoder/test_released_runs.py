"""Every hypothesis of the papers' own runs is found again, where that data is."""

from __future__ import annotations

import dataclasses
import gzip
import json
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Progress, Prompt
from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.config import Compression
from earvoice.models.loaders.fairseq import read_fairseq
from earvoice.models.translation import SpeechTranslationModel
from tests.integration.decoder.searching import END, beam_opening, search_together

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


pytestmark = pytest.mark.torch

LIMIT = 201
"""Most tokens of a hypothesis in those runs, prefix and end of sentence included."""
LAYER = 3
RUNS = [
    ("full_avg_edatt_a0.2", 5, 44),
    ("v10_avg_la", 5, 78),
    ("v10_avg_edatt_a0.2", 5, 84),
    ("v10_avg_alignatt_f4", 5, 73),
    ("v10_avg_waitk3_adaptive", 5, 114),
    ("v10_none_edatt_beam1_a0.2", 1, 85),
    ("v11_avg_streamatt_w8", 5, 60),
]


def _network(shared_golden: Path, compression: Compression) -> SpeechTranslationModel:
    parts = read_fairseq(shared_golden / "models" / "t1" / "checkpoint.pt", "en", "de")
    encoder = dataclasses.replace(parts.config.encoder, compression=compression)
    return build_network(dataclasses.replace(parts.config, encoder=encoder), parts.tensors)


@pytest.fixture(scope="module")
def toy(shared_golden: Path) -> Checkpoint:
    """The trained toy; used for its features."""
    path = shared_golden / "models" / "t1" / "checkpoint.pt"
    return load_checkpoint(path, source_language="en", target_language="de")


def _openings(segments: Sequence[Segment], size: int) -> list[Prompt]:
    return [
        beam_opening(
            (END, *segment.prefix),
            BeamPlan(size, LIMIT - len(segment.prefix)),
            LAYER,
            reported_prefix_tokens=len(segment.prefix),
        )
        for segment in segments
    ]


def _assert_attention(found: Progress, expected: np.ndarray) -> None:
    rows = [*found.prefix_attention, *(choice.attention for choice in found.beam[0].tokens)]
    np.testing.assert_allclose(np.array(rows), expected.T, atol=2e-5)


@pytest.mark.parametrize(("name", "size", "count"), RUNS)
def test_every_hypothesis_of_a_run(
    shared_golden: Path, toy: Checkpoint, name: str, size: int, count: int
) -> None:
    """Tokens exactly, scores to 1e-4, attention to 2e-5; an utterance's segments in one batch."""
    network = _network(shared_golden, "none" if "_none_" in name else "avg")
    strategy = SearchStrategy(network.decoder)
    attention_path = shared_golden / "runs" / f"{name}_attn.npz"
    attention = np.load(attention_path) if attention_path.exists() else {}
    checked = 0
    for utterance in read_run(shared_golden, name):
        features = toy.open_features()((utterance.samples / 32768).astype(np.float32))
        states = [
            network.encoder.encode(features[segment.frames]).states.numpy()
            for segment in utterance.segments
        ]
        openings = _openings(utterance.segments, size)
        batch = search_together(strategy, list(zip(states, openings, strict=True)))
        for segment, found in zip(utterance.segments, batch, strict=True):
            tokens = [choice.token for choice in found.beam[0].tokens]
            assert (*segment.prefix, *tokens) == segment.hypothesis
            if segment.score is not None:
                assert found.beam[0].score == pytest.approx(segment.score, abs=1e-4)
            if segment.attention_key in attention:
                _assert_attention(found, attention[segment.attention_key])
            checked += 1
    assert checked == count
