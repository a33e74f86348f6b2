"""Loading the checkpoint that a service's settings name: ours, the papers' or another family's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.models.checkpoint import Checkpoint, Half, load_checkpoint
from earvoice.models.precision import chosen_device, chosen_dtype
from earvoice.models.wrapped.directory import is_wrapped, require_transformers
from earvoice.runtime.settings import ModelSettings

if TYPE_CHECKING:
    from earvoice.models.wrapped.loading import WrappedModel  # imports transformers


def load_served(
    settings: ModelSettings, *, without: Half
) -> tuple[Checkpoint | WrappedModel, torch.device]:
    """Return the model and the device that it computes on; also set torch's number of threads.

    Args:
        without: half of the network that the service does not need.
    """
    torch.set_num_threads(settings.torch_threads)
    device = chosen_device(settings.device)
    if not is_wrapped(settings.model_path):
        checkpoint = load_checkpoint(
            settings.model_path,
            precision=settings.precision,
            device=device,
            source_language=settings.source_language,
            target_language=settings.target_language,
            compression=None if settings.compression == "checkpoint" else settings.compression,
            without=without,
        )
        return checkpoint, device
    require_transformers()
    from earvoice.models.wrapped.loading import load_wrapped  # noqa: PLC0415 - transformers

    model = load_wrapped(
        settings.model_path,
        dtype=chosen_dtype(settings.precision, device, bears_bfloat16=False),
        device=device,
        source_language=settings.source_language,
        target_language=settings.target_language,
        compression=settings.compression,
        name=settings.model_name,
    )
    return model, device
