"""From the snapshots of a run to a checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.models.checkpoint import save_checkpoint
from earvoice.training.run_state import average_snapshots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from earvoice.training.start import TrainingStart


def export(start: TrainingStart, snapshots: Sequence[Path], directory: Path) -> None:
    """Average snapshots of a run that began with `start`; write them with 16-bit matrices."""
    write(start, average_snapshots(snapshots), directory, torch.float16)


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
