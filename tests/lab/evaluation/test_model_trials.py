"""``earvoice precision`` and ``calibrate`` try a model on a set, and write into its config."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.evaluation.precision import translate_offline
from earvoice.models.checkpoint import (
    directory_hash,
    load_checkpoint,
    load_config,
    write_calibration,
)
from earvoice.models.vocabulary import EOS
from tests.lab.evaluation.commands import run_command
from tests.tiny_model import (
    LIVELY_TEXT,
    random_network,
    save_network,
    tiny_config,
    train_sentencepiece,
)

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]


def test_verdict_is_printed_and_kept(
    test_set: Path, model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A line a format, fp32 equal to itself; the config keeps it, a dry run leaves it alone."""
    model = tmp_path / "model"
    shutil.copytree(model_path, model)
    before = load_checkpoint(model).hash
    arguments = (
        *("precision", "--model", model, "--source", test_set / "wavs.txt"),
        *("--target", test_set / "refs.txt", "--precisions", "int8"),
    )
    run_command(*arguments, "--dry-run")
    assert load_checkpoint(model).hash == before
    run_command(*arguments)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["inputs", "fp32", "int8"] * 2
    assert lines[1][1:3] == ["2", "100.00"]
    assert float(lines[1][3]) > 0
    kept = json.loads((model / "config.json").read_text())["precision_trials"]
    (trial,) = (trial for trial in kept if trial["precision"] == "int8")
    assert trial["target_language"] == "de"
    assert 100 * trial["equal_share"] == float(lines[-1][2])
    assert load_checkpoint(model).hash != before


def test_a_text_without_an_end_is_cut(tmp_path: Path):
    """A model that never ends a text writes until its positions are used up."""
    pieces = train_sentencepiece(LIVELY_TEXT, 64)
    config = tiny_config(pieces, pieces)
    shape = replace(config.decoder, positions="learned", max_tokens=16)
    network = random_network(replace(config, decoder=shape))
    with torch.no_grad():
        network.transformer_decoder.embed_tokens.weight[EOS] = 0
    save_network(tmp_path, network, pieces, pieces)
    assert translate_offline(load_checkpoint(tmp_path), "de", torch.randn(200, 80))


def test_languages_and_limits_are_checked(test_set: Path, model_path: Path):
    """A language that the model does not write, and a limit of nothing, are named."""
    arguments = (
        *("precision", "--model", model_path, "--source", test_set / "wavs.txt"),
        *("--target", test_set / "refs.txt"),
    )
    with pytest.raises(SystemExit, match="--to fr is not written; allowed: de"):
        run_command(*arguments, "--to", "fr")
    with pytest.raises(SystemExit, match="--limit 0 is not allowed"):
        run_command(*arguments, "--limit", 0)


def test_calibration_writes_what_it_chose(test_set: Path, model_path: Path, tmp_path: Path):
    """The model loads with its new parameters, under another hash; a dry run changes nothing."""
    model = tmp_path / "model"
    # One input, because every parameter is tried on every one.
    (tmp_path / "wavs.txt").write_text(f"{test_set / 'a.wav'}\n")
    (tmp_path / "refs.txt").write_text("Sie sagte, dass\n")
    shutil.copytree(model_path, model)
    before = load_checkpoint(model).hash
    arguments = (
        *("calibrate", "--model", model, "--source", tmp_path / "wavs.txt", "--segment", 400),
        *("--target", tmp_path / "refs.txt", "--to", "de", "--output", tmp_path / "work"),
    )
    run_command(*arguments, "--dry-run")
    assert load_checkpoint(model).hash == before
    run_command(*arguments)
    assert load_checkpoint(model).hash != before
    chosen = load_config(model).policy_defaults
    assert chosen.segment_ms == 400
    assert chosen.alpha in chosen.alphas or len(chosen.alphas) == 6
    assert chosen.frame_distances


def test_confidence_is_fitted_on_a_run(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Too sure a model becomes less sure; what is mostly wrong is held back from then on."""
    model, run = tmp_path / "model", tmp_path / "run"
    shutil.copytree(tiny_path, model)
    run.mkdir()
    before = directory_hash(model)
    source = load_config(model).source_language
    options = {"target_languages": [source], "min_confidence": 0.0}
    settings = {"session": {"model_hash": before, "options": options}}
    (run / "evaluation.json").write_text(json.dumps(settings))
    lines = [
        ("one two three four", "one two three five", [0.99, 0.98, 0.99, 0.6]),
        ("six seven", "six seven", [0.97, 0.95]),
        ("thank you very much", "", [0.7, 0.9, 0.5, 0.6]),
    ]
    (run / "instances.log").write_text(
        "".join(
            json.dumps(
                {
                    "prediction": said,
                    "reference": reference,
                    "confidences": sure,
                    "delays": [800.0] * len(sure),
                    "elapsed": [900.0] * len(sure),
                    "utterances": [{"units": len(sure)}],
                }
            )
            + "\n"
            for said, reference, sure in lines
        )
    )
    arguments = ("calibrate", "--confidence", run, "--model", model)
    run_command(*arguments, "--dry-run")
    assert directory_hash(model) == before
    run_command(*arguments)
    chosen = load_config(model).confidence
    told = load_checkpoint(model).describe("").confidence_map
    assert (told.unsure_scale, told.sure_scale) == (chosen.unsure_scale, chosen.sure_scale)
    assert (told.unsure_scale, told.sure_scale, told.offset) != (1.0, 1.0, 0.0)
    assert 0 < chosen.least < 1
    printed = capsys.readouterr().out
    assert "held back are 0 of 2 utterances with more right words than wrong, and 1 of" in printed
    with pytest.raises(SystemExit, match="model_hash"):
        run_command(*arguments)


def test_make_evaluates_a_calibrated_model_anew(tiny_path: Path, tmp_path: Path):
    """A run belongs to one model's hash: those of another are in another folder."""
    model = shutil.copytree(tiny_path, tmp_path / "model")
    command = ("make", "--dry-run", "evaluate-model", f"MODEL={model}", f"WORK={tmp_path}")

    def printed() -> str:
        return subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    before = printed()
    assert f"--output {tmp_path}/evaluation/" in before
    assert printed() == before
    write_calibration(model, replace(load_config(model).policy_defaults, alpha=0.123))
    assert printed() != before


def test_a_calibration_needs_its_set(model_path: Path):
    """Of the policy's parameters: a set, and where replays go."""
    with pytest.raises(SystemExit, match="--source is missing"):
        run_command("calibrate", "--model", model_path)
    arguments = ("calibrate", "--model", model_path, "--confidence", "run", "--lag-ms", "1300")
    with pytest.raises(SystemExit, match="--lag-ms is for the policy's parameters"):
        run_command(*arguments)
