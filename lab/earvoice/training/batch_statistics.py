"""BatchNorm's statistics, measured anew for weights that were averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from earvoice.models.translation import SpeechTranslationModel
    from earvoice.training.dataset import Batch


@torch.no_grad()
def measure_statistics(network: SpeechTranslationModel, batches: Iterable[Batch]) -> None:
    """Replace BatchNorm's running statistics by their mean over `batches`.

    Snapshots differ in what they feed each layer, so the mean of their statistics is not what
    the mean of their weights meets (Izmailov 2018, stochastic weight averaging, section 3.2).
    The network is left in evaluation mode.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm1d)]
    usual = [norm.momentum for norm in norms]
    network.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in batches:
        network(batch.features, batch.lengths, batch.previous_tokens)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
    network.eval()
