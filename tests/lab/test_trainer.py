"""A training run survives interruption."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.models.translation import SightMask, SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.__main__ import main
from earvoice.training.budget import Budget
from earvoice.training.dataset import TrainingData
from earvoice.training.dev_set import DevClip, score
from earvoice.training.device import CPU
from earvoice.training.metric import Score
from earvoice.training.normalisation import Normalisation, measure_normalisation
from earvoice.training.peers import Peers
from earvoice.training.recipe import TextRecipe, TrainingRecipe
from earvoice.training.run_state import (
    OtherStartError,
    RunFolder,
    RunState,
    average_snapshots,
    check_start,
    default_run_folder,
)
from earvoice.training.target_text import TargetText
from earvoice.training.text_data import TextData
from earvoice.training.trainer import Trainer
from tests.lab.tiny_corpus import make_sentence, tiny_model, write_corpus

pytestmark = pytest.mark.torch
RECIPE = TrainingRecipe(
    warmup_steps=3,
    batch_frames=(1_200, 1_200),
    together_progress=0.4,
    joined_frames=(150, 300),
    truncated_share=0.3,
    text=TextRecipe(batch_sentences=4, buckets=2),
)
STEPS = 10
Measure = Callable[[SpeechTranslationModel], list[Score]]


class InterruptionError(Exception):
    """Stands for the moment at which a process is killed."""


class Killer:
    """A measurement that interrupts the run the `calls`-th time."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self, network: SpeechTranslationModel) -> list[Score]:
        assert not network.training
        self._left -= 1
        if self._left == 0:
            raise InterruptionError
        return [Score("none", 0, 1.0)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny corpus with statistics."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    measure_normalisation(folder, RECIPE).write(folder)
    return folder


class Worse:
    """A measurement that finds every network worse than the one before."""

    def __init__(self) -> None:
        self._errors = 0.0

    def __call__(self, network: SpeechTranslationModel) -> list[Score]:
        self._errors += 0.1
        return [Score("none", 0, self._errors)]


BUDGET = Budget(steps=STEPS, save_every_s=0.0, measure_every_s=0.0)
"""Saves and measures after every step."""


def make_trainer(
    corpus: Path,
    run: Path,
    calls: int = 10_000,
    *,
    measure: Measure | None = None,
    budget: Budget = BUDGET,
    recipe: TrainingRecipe = RECIPE,
    peers: Peers | None = None,
    mask: SightMask | None = None,
    dropout: float = 0.1,
    device: torch.device = CPU,
) -> Trainer:
    """A trainer of a tiny network."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    source = Vocabulary.from_file(corpus / "source.model")
    target = TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""})
    config = tiny_model(len(source), len(target.vocabulary))
    network = SpeechTranslationModel(config, dropout=dropout).to(device)
    data = TrainingData(corpus, recipe, source, target, Normalisation.read(corpus))
    text = TextData(corpus, recipe.text, source, target)
    folder = RunFolder(run, 3)
    ask = measure or Killer(calls)
    return Trainer(network, data, text, recipe, budget, folder, ask, peers, mask)


@pytest.mark.parametrize("calls", [2, 5, 8])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    corpus: Path, tmp_path: Path, calls: int
) -> None:
    """Killed in either phase and continued, a run gives the same weights to the last bit."""
    make_trainer(corpus, tmp_path / "whole").run()
    with pytest.raises(InterruptionError):
        make_trainer(corpus, tmp_path / "cut", calls).run()
    continued = make_trainer(corpus, tmp_path / "cut")
    assert 0 < continued.state.step < STEPS
    continued.run()
    whole, cut = (RunFolder(tmp_path / name).load() for name in ("whole", "cut"))
    assert whole is not None
    assert cut is not None
    assert whole["state"]["together"] is True
    for name, value in whole["network"].items():
        assert torch.equal(value, cut["network"][name]), name


def test_snapshots_are_kept_and_averaged(corpus: Path, tmp_path: Path) -> None:
    """The snapshots around the best measurement stay, and their average is their mean."""
    make_trainer(corpus, tmp_path).run()
    run = RunFolder(tmp_path, 3)
    assert [int(path.stem) for path in run.snapshots()] == [4, 5, 6, 7, 8, 9, 10]
    assert [int(path.stem) for path in run.best_snapshots(2)] == [9, 10]
    mean = average_snapshots(run.snapshots())
    name = "encoder.ctc_fc.weight"
    single = [torch.load(path, weights_only=True)[name] for path in run.snapshots()]
    torch.testing.assert_close(mean[name], torch.stack(single).mean(0))
    assert [path.stem for path in run.milestones()] == ["1", "2", "3", "4", "5", "6"]
    assert (tmp_path / "curve.csv").read_text().startswith("step,elapsed_s,set")


def test_a_run_without_progress_ends_early(corpus: Path, tmp_path: Path) -> None:
    """The second measurement that is no better ends it, and the best snapshot is still there."""
    trainer = make_trainer(corpus, tmp_path, measure=Worse(), budget=replace(BUDGET, patience=2))
    trainer.run()
    assert trainer.state.step == 3
    assert [int(path.stem) for path in RunFolder(tmp_path).best_snapshots(1)] == [1]


def test_a_run_that_ended_early_stays_ended(corpus: Path, tmp_path: Path) -> None:
    """The same command once more adds no step."""
    budget = replace(BUDGET, patience=2)
    make_trainer(corpus, tmp_path, measure=Worse(), budget=budget).run()
    again = make_trainer(corpus, tmp_path, measure=Worse(), budget=budget)
    again.run()
    assert again.state.step == 3


def test_a_run_s_measurements_keep_their_distance(corpus: Path, tmp_path: Path) -> None:
    """However often it is interrupted, it measures when so much training is done."""
    make_trainer(corpus, tmp_path, budget=replace(BUDGET, steps=2)).run()
    state = make_trainer(corpus, tmp_path).state
    assert 0 < state.measured_s == state.elapsed_s


@pytest.mark.parametrize(
    ("budget", "progress"),
    [
        (Budget(minutes=520), 0.5),
        (Budget(minutes=520, wall_minutes=400), 0.75),
        (Budget(minutes=260, wall_minutes=400), 1.0),
    ],
)
def test_a_run_lasts_as_long_as_was_asked_for(budget: Budget, progress: float) -> None:
    """The clock limits it only where that was asked for, too."""
    assert budget.progress(RunState(elapsed_s=260 * 60, wall_s=300 * 60)) == progress


def test_a_run_is_bound_to_its_vocabularies(tmp_path: Path) -> None:
    """Its weights mean nothing with others."""
    run = RunFolder(tmp_path / "run")
    check_start(tmp_path / "run", "any")
    run.keep_start("these")
    check_start(tmp_path / "run", "these")
    with pytest.raises(OtherStartError, match=r"other vocabularies or feature statistics; allowed"):
        check_start(tmp_path / "run", "others")


def test_a_longer_run_goes_on_from_before_the_decay(corpus: Path, tmp_path: Path) -> None:
    """The state before the decay is kept; a new run begins with it, warms up and ends later."""
    recipe = replace(RECIPE, decay_share=0.3)
    make_trainer(corpus, tmp_path / "first", recipe=recipe).run()
    longer = RunFolder(tmp_path / "longer")
    longer.begin_after(tmp_path / "first" / "before-decay.pt")
    trainer = make_trainer(
        corpus, tmp_path / "longer", recipe=recipe, budget=replace(BUDGET, steps=2 * STEPS)
    )
    assert trainer.state.step == trainer.state.warmup_step == 8
    assert not trainer.state.decayed
    assert trainer.state.milestone == 0
    trainer.run()
    assert trainer.state.step == 2 * STEPS
    assert (tmp_path / "longer" / "before-decay.pt").exists()


def test_a_run_that_has_begun_is_not_begun_again(corpus: Path, tmp_path: Path) -> None:
    """Started once more with the same command, an interrupted run continues."""
    recipe = replace(RECIPE, decay_share=0.3)
    make_trainer(corpus, tmp_path, recipe=recipe).run()
    folder = RunFolder(tmp_path)
    folder.begin_after(tmp_path / "before-decay.pt")
    content = folder.load()
    assert content is not None
    assert content["state"]["step"] == STEPS


def test_a_continued_run_follows_the_recipe_of_today(corpus: Path, tmp_path: Path) -> None:
    """A rate that is changed between two parts of a run holds in the second."""
    make_trainer(corpus, tmp_path).run()
    still = replace(RECIPE, lower_learning_rate=(0.0, 0.0))
    trainer = make_trainer(corpus, tmp_path, recipe=still, budget=replace(BUDGET, steps=STEPS + 2))
    names = ("encoder.ctc_fc.weight", "decoder.layers.0.fc1.weight")
    before = {name: trainer.network.get_parameter(name).detach().clone() for name in names}
    trainer.run()
    moved = [not torch.equal(trainer.network.get_parameter(n), before[n]) for n in names]
    assert moved == [False, True]


def test_a_mask_covers_speech_and_text(corpus: Path, tmp_path: Path) -> None:
    """From the moment when the halves are together, every translation is written through it."""
    asked = []

    def see_all(labels: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        asked.append(len(tokens))
        return torch.ones((*tokens.shape, labels.shape[1]), dtype=torch.bool)

    recipe = replace(RECIPE, together_progress=0.0, text=replace(RECIPE.text, every_steps=2))
    make_trainer(corpus, tmp_path, recipe=recipe, mask=see_all).run()
    assert len(asked) == STEPS + STEPS // 2
    assert asked.count(RECIPE.text.batch_sentences) >= STEPS // 2


def test_fine_tuning_needs_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a checkpoint to begin with, the command line refuses it at once."""
    command = ["training", "train", "--corpus", str(tmp_path), "--fine-tune"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    assert "--fine-tune needs --start" in capsys.readouterr().err


def test_averaging_nothing_is_an_error() -> None:
    """There is no mean of no snapshots."""
    with pytest.raises(ValueError, match="no snapshot"):
        average_snapshots([])


def test_the_default_folder_is_the_users_state_folder() -> None:
    """Runs are kept outside the repository, where XDG says."""
    chosen = default_run_folder({"XDG_STATE_HOME": "/state"})
    assert chosen == Path("/state/earvoice/training")
    assert default_run_folder({}) == Path.home() / ".local/state/earvoice/training"


def test_scores_of_an_untrained_network(corpus: Path) -> None:
    """Held-out clips are read and translated, however badly."""
    source = Vocabulary.from_file(corpus / "source.model")
    target = TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""})
    torch.manual_seed(0)
    network = SpeechTranslationModel(tiny_model(len(source), len(target.vocabulary))).eval()
    clips = [DevClip(torch.randn(90, 80), make_sentence(index)) for index in range(3)]
    result = score("test", clips, network, source, target)
    assert result.clips == 3
    assert result.bleu is not None
