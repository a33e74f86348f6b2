"""BatchNorm meets what averaged weights give it."""

from pathlib import Path

import pytest
import torch

from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.batch_statistics import measure_statistics
from earvoice.training.dataset import TrainingData
from earvoice.training.example import Example
from earvoice.training.normalisation import Normalisation
from earvoice.training.recipe import TrainingRecipe
from earvoice.training.target_text import TargetText
from tests.lab.tiny_corpus import tiny_model, write_corpus

pytestmark = pytest.mark.torch


def test_statistics_are_those_of_the_batches(tmp_path: Path) -> None:
    """They forget what they were, and one batch gives its own mean and deviation."""
    write_corpus(tmp_path)
    Normalisation(torch.zeros(80).numpy(), torch.ones(80).numpy()).write(tmp_path)
    source = Vocabulary.from_file(tmp_path / "source.model")
    target = TargetText(Vocabulary.from_file(tmp_path / "target.model"), {"de": ""})
    recipe = TrainingRecipe()
    data = TrainingData(tmp_path, recipe, source, target, Normalisation.read(tmp_path))
    batch = data.assemble([Example((i,), 100, i) for i in range(6)], recipe.augmentation)
    network = SpeechTranslationModel(tiny_model(len(source), len(target.vocabulary)))
    norm = network.encoder.layers[0].conv_module.batchnorm
    met: list[torch.Tensor] = []
    norm.register_forward_pre_hook(lambda _, inputs: met.append(inputs[0].detach()))
    norm.running_mean.fill_(7.0)
    measure_statistics(network, [batch])
    torch.testing.assert_close(norm.running_mean, met[0].mean(0))
    torch.testing.assert_close(norm.running_var, met[0].var(0))
    assert not network.training
    assert norm.momentum == torch.nn.BatchNorm1d(1).momentum
