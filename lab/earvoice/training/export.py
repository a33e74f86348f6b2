"""From the snapshots of a run to a checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.models.checkpoint import save_checkpoint
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.model_shape import default_model
from earvoice.training.normalisation import Normalisation
from earvoice.training.run_state import average_snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.training.run_state import RunFolder


def export(corpus: Path, run: RunFolder, snapshots: int, directory: Path) -> None:
    """Average the last snapshots and write them with 16-bit matrices."""
    source = (corpus / "source.model").read_bytes()
    target = (corpus / "target.model").read_bytes()
    save_checkpoint(
        directory,
        default_model(len(Vocabulary(source)), len(Vocabulary(target))),
        average_snapshots(run.snapshots()[-snapshots:]),
        normalisation=Normalisation.read(corpus).for_model(),
        source_model=source,
        target_model=target,
        storage_dtype=torch.float16,
    )
