"""A transducer through the three services: its checkpoint says the policy and the step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.models.checkpoint import save_checkpoint
from earvoice.models.config import DecoderConfig, PolicyDefaults
from earvoice.models.frontend import FeatureNormalisation
from tests.e2e.calling import SPEECH
from tests.tiny_model import LIVELY_TEXT, lively_network, tiny_config, train_sentencepiece

pytestmark = pytest.mark.torch

STEP_MS = 320


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = replace(
        tiny_config(pieces, pieces),
        decoder=DecoderConfig(layers=1, predictor_layers=2, heads=4, ffn_width=48),
        policy_defaults=PolicyDefaults("transducer", attention_layer=1, segment_ms=STEP_MS),
    )
    save_checkpoint(
        tmp_path / "model",
        config,
        lively_network(config, 5).state_dict(),
        normalisation=FeatureNormalisation.identity(),
        source_model=pieces,
        target_model=pieces,
    )
    return tmp_path / "model"


@pytest.mark.parametrize("beam", [1, 4])
def test_translate_serves_it_like_any_checkpoint(checkpoint: Path, beam: int) -> None:
    """Without a word of policies: text comes while the recording runs, at steps' ends."""
    paths = {f"EARVOICE_{one}_MODEL_PATH": str(checkpoint) for one in ("ENCODER", "DECODER")}
    command = [sys.executable, "-m", "earvoice.cli", "translate", SPEECH, "--to", "de"]
    options = ["--format", "jsonl", "--no-guards", "--beam-size", beam]
    done = subprocess.run(
        [*map(str, command), *map(str, options)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | paths,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    delays_ms = [line["delay_ms"] for line in lines if line["type"] == "word"]
    assert delays_ms
    assert min(delays_ms) % STEP_MS == 0
