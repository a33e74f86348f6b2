"""A part of the plan, run on the shipped model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from earvoice.claims.experiment_reader import read_experiment, read_training
from earvoice.claims.plan import AGREEMENT, AGREEMENT_UNDRAFTED, TRUNCATION
from earvoice.claims.run import PlanRun, run_plan
from earvoice.evaluation.recording import Recording
from earvoice.evaluation.run.source_list import read_sources
from earvoice.runtime.model_settings import shipped_model_path

pytestmark = pytest.mark.torch

DEMO = Path(__file__).parents[3] / "demo" / "librispeech_1995-1837-0001.wav"
WORDS = [{"word": "she", "start_ms": 100.0, "end_ms": 400.0}]


def run(folder, *parts, grids_ms=(800, 1000)):
    samples, rate_hz = soundfile.read(DEMO, dtype="int16")
    soundfile.write(folder / "a.wav", samples[: int(2.1 * rate_hz)], rate_hz)
    (folder / "wavs.txt").write_text("a.wav\n", encoding="utf8")
    sources = read_sources(folder / "wavs.txt", ["Sie sagte, dass"])
    plan_run = PlanRun(shipped_model_path(), "shipped", "de", folder / "results", parts, grids_ms)
    run_plan(plan_run, sources, [json.dumps(WORDS)])


def test_a_part_is_run_and_can_be_read(tmp_path):
    """What the recorded segments hold is there, nothing else, and every layer looks somewhere."""
    run(tmp_path, "text", "shares")
    experiment, facts = read_experiment(tmp_path / "results")
    assert set(experiment.results) == {*AGREEMENT[2][2:], *AGREEMENT_UNDRAFTED[2:]}
    assert facts.inputs == 1
    assert len(experiment.attention) == facts.layers
    for layer in experiment.attention:
        assert 0 <= layer.last_share[0] + layer.previous_share[0] <= 1


def test_settings_of_trainings_are_run(tmp_path):
    """The part that compares trainings records what it needs and no more."""
    run(tmp_path, "training", grids_ms=())
    experiment, _ = read_training(tmp_path / "results")
    assert set(experiment.results) == set(TRUNCATION)
    (revisions,) = [it.revisions for it in Recording(tmp_path / "results/recording").inputs()]
    assert [round(it.end_sample / 16) for it in revisions] == [1000, 2000, 2100]


def test_what_is_finished_is_not_run_again(tmp_path):
    """The same command leaves the logs as they are."""
    run(tmp_path, "text")
    logs = sorted((tmp_path / "results" / "settings").glob("*/instances.log"))
    before = [path.read_bytes() for path in logs]
    run(tmp_path, "text")
    assert [path.read_bytes() for path in logs] == before
    assert len(logs) == 4
