"""A training run survives interruption."""

from pathlib import Path

import pytest
import torch

from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.dataset import TrainingData
from earvoice.training.dev_set import DevClip, score
from earvoice.training.metric import Score
from earvoice.training.normalisation import Normalisation, measure_normalisation
from earvoice.training.recipe import TextRecipe, TrainingRecipe
from earvoice.training.run_state import RunFolder, average_snapshots, default_run_folder
from earvoice.training.target_text import TargetText
from earvoice.training.text_data import TextData
from earvoice.training.trainer import Budget, Trainer
from tests.lab.tiny_corpus import make_sentence, tiny_model, write_corpus

pytestmark = pytest.mark.torch
RECIPE = TrainingRecipe(
    warmup_steps=3,
    batch_frames=(1_200, 1_200),
    together_progress=0.4,
    joined_frames=(150, 300),
    text=TextRecipe(batch_sentences=4, buckets=2),
)
STEPS = 10


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


def make_trainer(corpus: Path, run: Path, calls: int = 10_000) -> Trainer:
    """A trainer that saves and measures after every step."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    source = Vocabulary.from_file(corpus / "source.model")
    target = TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""})
    network = SpeechTranslationModel(tiny_model(len(source), len(target.vocabulary)), dropout=0.1)
    data = TrainingData(corpus, RECIPE, source, target, Normalisation.read(corpus))
    budget = Budget(steps=STEPS, save_every_s=0.0, measure_every_s=0.0)
    text = TextData(corpus, RECIPE.text, source, target)
    return Trainer(network, data, text, RECIPE, budget, RunFolder(run, 3), Killer(calls))


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
    """The last snapshots stay, and their average is their mean."""
    make_trainer(corpus, tmp_path).run()
    paths = RunFolder(tmp_path, 3).snapshots()
    assert [path.stem for path in paths] == ["0000008", "0000009", "0000010"]
    mean = average_snapshots(paths)
    name = "encoder.ctc_fc.weight"
    single = [torch.load(path, weights_only=True)[name] for path in paths]
    torch.testing.assert_close(mean[name], torch.stack(single).mean(0))
    milestones = RunFolder(tmp_path, 3).milestones()
    assert [path.stem for path in milestones] == ["1", "2", "3", "4", "5", "6"]
    assert (tmp_path / "curve.csv").read_text().startswith("step,elapsed_s,set")


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
