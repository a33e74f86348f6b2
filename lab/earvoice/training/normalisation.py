"""Global feature statistics, measured on what training hears."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.augmentation import MEL_BINS
from earvoice.training.dataset import TrainingData
from earvoice.training.example import plan_epoch
from earvoice.training.target_text import TargetText

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from earvoice.training.recipe import TrainingRecipe

_FILE = "cmvn.npz"
_EVERY = 40


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each mel bin, float32 [80]."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """[frames, 80] to [frames, 80] float32: (x - mean) / deviation."""
        return np.asarray((features - self.mean) / self.deviation, dtype=np.float32)

    def for_model(self) -> FeatureNormalisation:
        """Return the same statistics as the models hold them."""
        return FeatureNormalisation(torch.from_numpy(self.mean), torch.from_numpy(self.deviation))

    @classmethod
    def from_model(cls, statistics: FeatureNormalisation) -> Normalisation:
        """Return the statistics of a model."""
        return cls(statistics.mean.float().numpy(), statistics.deviation.float().numpy())

    @classmethod
    def read(cls, corpus: Path) -> Normalisation:
        """Read ``cmvn.npz``."""
        with np.load(corpus / _FILE) as statistics:
            return cls(statistics["mean"], statistics["deviation"])

    def write(self, corpus: Path) -> None:
        """Write ``cmvn.npz``."""
        np.savez(corpus / _FILE, mean=self.mean, deviation=self.deviation)


def measure_normalisation(corpus: Path, recipe: TrainingRecipe) -> Normalisation:
    """Measure every fortieth example of one epoch, augmented as in training, nothing masked."""
    plain = dataclasses.replace(recipe.augmentation, frequency_masks=0, time_masks=0)
    data = TrainingData(
        corpus,
        recipe,
        Vocabulary.from_file(corpus / "source.model"),
        TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""}),
        Normalisation(np.zeros(MEL_BINS, np.float32), np.ones(MEL_BINS, np.float32)),
    )
    examples = plan_epoch(data.pool(), 0, 0.0, recipe)[::_EVERY]
    total, squares, frames = np.zeros(MEL_BINS), np.zeros(MEL_BINS), 0
    for example in examples:
        batch = data.assemble([example], plain)
        features = batch.features[0].double().numpy()
        total += features.sum(axis=0)
        squares += np.square(features).sum(axis=0)
        frames += len(features)
    mean = total / frames
    deviation = np.sqrt(squares / frames - np.square(mean))
    return Normalisation(mean.astype(np.float32), deviation.astype(np.float32))
