"""The papers' other systems through the three services, from checkpoints like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.models.config import DecoderConfig, ModelConfig, PolicyDefaults
from earvoice.models.lstm import LstmConfig
from tests.e2e.calling import SPEECH
from tests.e2e.running import earvoice, start
from tests.tiny_model import LIVELY_TEXT, tiny_config, train_sentencepiece, write_lively_checkpoint

pytestmark = pytest.mark.torch

STEP_MS = 320


@contextmanager
def _served(folder: Path, config: ModelConfig, pieces: bytes) -> Iterator[str]:
    """The address of services of a random network."""
    write_lively_checkpoint(folder / "model", config, pieces)
    model = {f"EARVOICE_{one}_MODEL_PATH": str(folder / "model") for one in ("ENCODER", "DECODER")}
    running = start(folder, **model)
    try:
        yield running.address
    finally:
        code = running.stop()
    assert code == 0


def _translated(address: str, *options: object) -> list[float]:
    """When each word came, in ms of audio."""
    command = ("translate", SPEECH, "--server", address, "--to", "de", "--format", "jsonl")
    done = earvoice(*command, "--no-guards", *options)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line["delay_ms"] for line in lines if line["type"] == "word"]


def test_a_transducer_decides_by_itself(tmp_path: Path) -> None:
    """Without a word of policies: text comes while the recording runs, at steps' ends."""
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = replace(
        tiny_config(pieces, pieces),
        decoder=DecoderConfig(layers=1, predictor_layers=2, heads=4, ffn_width=48),
        policy_defaults=PolicyDefaults("transducer", attention_layer=1, segment_ms=STEP_MS),
    )
    with _served(tmp_path, config, pieces) as address:
        for beam in (1, 4):
            delays_ms = _translated(address, "--beam-size", beam)
            assert delays_ms
            assert min(delays_ms) % STEP_MS == 0


def test_lstms_follow_a_frame_schedule(tmp_path: Path) -> None:
    """Nguyen 2021: nothing before k frames, then at each stride."""
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = replace(
        tiny_config(pieces, pieces),
        encoder=LstmConfig(d_model=32, channels=4, layers=1, cells=16),
        decoder=DecoderConfig(architecture="lstm", layers=2, heads=1, ffn_width=32),
        policy_defaults=PolicyDefaults("hold_n", attention_layer=1),
    )
    policy = "frame_schedule:wait_frames=100,stride_frames=20,tokens=2"
    with _served(tmp_path, config, pieces) as address:
        delays_ms = _translated(address, "--policy", policy)
    assert delays_ms
    assert min(delays_ms) >= 1000
