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
    start_share: float = 0.0,
) -> None:
    """Average snapshots of a run that began with `start`; write them with 16-bit matrices.

    BatchNorm's statistics are measured anew on inputs as the end of the run has them, but whole.
    With a share of what the run began with, the mean is between both (Wortsman 2022, "Robust
    fine-tuning of zero-shot models"): it keeps what a short run has unlearned.

    Raises:
        ValueError: the share is not from 0 to 1, or the run began at random.
    """
    weights = average_snapshots(snapshots)
    if start_share:
        weights = between(weights, start, start_share)
    network = start.network(0.0)
    network.load_state_dict(weights)
    examples = plan_epoch(data.pool(), 0, recipe.joined_share, recipe)
    batches = make_batches(examples, batch_frames(together=True, recipe=recipe), recipe.seed)
    measure_statistics(
        network, (data.assemble(batch, recipe.augmentation) for batch in batches[:_BATCHES])
    )
    write(start, network.state_dict(), directory, torch.float16)


def between(
    weights: Mapping[str, torch.Tensor], start: TrainingStart, start_share: float
) -> dict[str, torch.Tensor]:
    """Return the weighted mean of a run's weights and of those that it began with.

    Raises:
        ValueError: the share is not from 0 to 1, or the run began at random.
    """
    if not 0.0 <= start_share <= 1.0:
        message = f"start_share = {start_share}; allowed: 0 to 1"
        raise ValueError(message)
    if start.weights is None:
        message = f"start_share = {start_share} of a run that began at random; allowed: 0"
        raise ValueError(message)
    # The network's own dictionary: tied weights are in no checkpoint, and are to be mixed, too.
    begun = start.network(0.0).state_dict()
    return {
        name: torch.lerp(value.float(), begun[name].float(), start_share)
        for name, value in weights.items()
    }


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
