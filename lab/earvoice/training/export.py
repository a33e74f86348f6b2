"""From the snapshots of a run to a checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.models.checkpoint import save_checkpoint
from earvoice.training.batch_statistics import measure_statistics
from earvoice.training.bucketing import make_batches
from earvoice.training.example import plan_epoch
from earvoice.training.run_state import average_snapshots
from earvoice.training.schedule import batch_frames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from earvoice.training.dataset import TrainingData
    from earvoice.training.recipe import TrainingRecipe
    from earvoice.training.start import TrainingStart

_BATCHES = 60


def export(
    start: TrainingStart,
    snapshots: Sequence[Path],
    directory: Path,
    data: TrainingData,
    recipe: TrainingRecipe,
) -> None:
    """Average snapshots of a run that began with `start`; write them with 16-bit matrices.

    BatchNorm's statistics are measured anew on inputs as the end of the run has them, but whole.
    """
    network = start.network(0.0)
    network.load_state_dict(average_snapshots(snapshots))
    examples = plan_epoch(data.pool(), 0, recipe.joined_share, recipe)
    batches = make_batches(examples, batch_frames(together=True, recipe=recipe), recipe.seed)
    measure_statistics(
        network, (data.assemble(batch, recipe.augmentation) for batch in batches[:_BATCHES])
    )
    write(start, network.state_dict(), directory, torch.float16)


def write(
    start: TrainingStart,
    weights: Mapping[str, torch.Tensor],
    directory: Path,
    storage_dtype: torch.dtype,
) -> None:
    """Write weights as a checkpoint directory, with all else that `start` holds."""
    save_checkpoint(
        directory,
        start.config,
        weights,
        normalisation=start.normalisation.for_model(),
        source_model=start.source_model,
        target_model=start.target_model,
        storage_dtype=storage_dtype,
    )
