"""The papers' other systems through the three services, from checkpoints like any other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.models.config import DecoderConfig, ModelConfig, PolicyDefaults
from earvoice.models.lstm import LstmConfig
from tests.e2e.calling import SPEECH
from tests.e2e.running import earvoice
from tests.tiny_model import LIVELY_TEXT, tiny_config, train_sentencepiece, write_lively_checkpoint

pytestmark = pytest.mark.torch

STEP_MS = 320


def _translated(folder: Path, config: ModelConfig, pieces: bytes, *options: object) -> list[float]:
    """When each word came, in ms of audio."""
    write_lively_checkpoint(folder, config, pieces)
    paths = {f"EARVOICE_{one}_MODEL_PATH": str(folder) for one in ("ENCODER", "DECODER")}
    command = ("translate", SPEECH, "--to", "de", "--format", "jsonl", "--no-guards")
    done = earvoice(*command, *options, **paths)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line["delay_ms"] for line in lines if line["type"] == "word"]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_transducer_decides_by_itself(tmp_path: Path, beam: int) -> None:
    """Without a word of policies: text comes while the recording runs, at steps' ends."""
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = replace(
        tiny_config(pieces, pieces),
        decoder=DecoderConfig(layers=1, predictor_layers=2, heads=4, ffn_width=48),
        policy_defaults=PolicyDefaults("transducer", attention_layer=1, segment_ms=STEP_MS),
    )
    delays_ms = _translated(tmp_path / "model", config, pieces, "--beam-size", beam)
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
    delays_ms = _translated(tmp_path / "model", config, pieces, "--policy", policy)
    assert delays_ms
    assert min(delays_ms) >= 1000
