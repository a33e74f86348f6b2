"""Training as a command, started as its documentation says."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.__main__ import main
from earvoice.training.export import between, write
from earvoice.training.normalisation import measure_normalisation
from earvoice.training.recipe import TrainingRecipe
from earvoice.training.run_state import RunFolder
from earvoice.training.start import TrainingStart
from tests.lab.tiny_corpus import tiny_model, write_corpus

pytestmark = pytest.mark.torch


def write_checkpoint(corpus: Path, folder: Path) -> None:
    """A tiny network with random weights, to begin with."""
    source, target = ((corpus / f"{side}.model").read_bytes() for side in ("source", "target"))
    config = tiny_model(len(Vocabulary(source)), len(Vocabulary(target)))
    normalisation = measure_normalisation(corpus, TrainingRecipe())
    start = TrainingStart(config, source, target, normalisation)
    write(start, SpeechTranslationModel(config).state_dict(), folder, torch.float32)


def test_two_processes_train_by_command(tmp_path: Path) -> None:
    """Under `torchrun` they share a run on the CPU, and one of them writes it."""
    corpus, start, run = (tmp_path / name for name in ("corpus", "start", "run"))
    corpus.mkdir()
    write_corpus(corpus)
    write_checkpoint(corpus, start)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    module = ["-m", "--", "earvoice.training", "train", "--device", "cpu", "--minutes", "0.01"]
    folders = ["--corpus", str(corpus), "--start", str(start), "--run", str(run)]
    command = [*launcher, *module, *folders]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    content = RunFolder(run).load()
    assert content is not None
    assert content["state"]["step"] > 0
    assert [path.stem for path in RunFolder(run).milestones()][-1] == "6"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["train", "--minutes", "0"], "--minutes 0.0; allowed: more than 0"),
        (["train", "--wall-minutes", "-1"], "--wall-minutes -1.0; allowed: more than 0"),
        (["train", "--wait-k", "0"], "--wait-k 0; allowed: 1 or more"),
        (["train", "--threads", "0"], "--threads 0; allowed: 1 or more"),
        (["train", "--patience", "0"], "--patience 0; allowed: 1 or more"),
        (["export", "--to", "x", "--snapshots", "0"], "--snapshots 0; allowed: 1 or more"),
        (["export", "--to", "x", "--start-share", "2"], "--start-share 2.0; allowed: 0 to 1"),
    ],
)
def test_numbers_that_no_run_can_have_are_refused(
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is read."""
    monkeypatch.setattr(sys, "argv", ["training", *options, "--corpus", "nowhere"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_run_of_other_vocabularies_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, before its weights are read."""
    write_corpus(tmp_path)
    write_checkpoint(tmp_path, tmp_path / "start")
    RunFolder(tmp_path / "run").keep_start("of others")
    folders = ["--corpus", "--start", "--run", "--to"]
    paths = [str(path) for path in (tmp_path, *(tmp_path / n for n in ("start", "run", "to")))]
    given = [part for pair in zip(folders, paths, strict=True) for part in pair]
    monkeypatch.setattr(sys, "argv", ["training", "export", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "other vocabularies or feature statistics" in capsys.readouterr().err


def test_a_share_of_the_start_stays_in_the_mean(tmp_path: Path) -> None:
    """Every weight lies between the run's and the start's, tied ones too."""
    write_corpus(tmp_path)
    write_checkpoint(tmp_path, tmp_path / "start")
    start = TrainingStart.from_checkpoint(tmp_path / "start")
    begun = start.network(0.0).state_dict()
    trained = {name: value.float() + 1.0 for name, value in begun.items()}
    mixed = between(trained, start, 0.25)
    assert set(mixed) == set(begun)
    for name, value in mixed.items():
        torch.testing.assert_close(value, begun[name].float() + 0.75)
    network = start.network(0.0)
    network.load_state_dict(mixed)
    tied = network.decoder.embed_tokens.weight
    torch.testing.assert_close(tied, begun["decoder.embed_tokens.weight"] + 0.75)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_from_zero_to_one(tmp_path: Path, share: float) -> None:
    """Another one is refused, and so is any of a run that began at random."""
    write_corpus(tmp_path)
    write_checkpoint(tmp_path, tmp_path / "start")
    start = TrainingStart.from_checkpoint(tmp_path / "start")
    with pytest.raises(ValueError, match=f"start_share = {share}; allowed: 0 to 1"):
        between({}, start, share)
    with pytest.raises(ValueError, match="began at random; allowed: 0"):
        between({}, replace(start, weights=None), 0.5)
