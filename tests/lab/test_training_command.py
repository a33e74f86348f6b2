"""Training as a command, started as its documentation says."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.export import write
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
