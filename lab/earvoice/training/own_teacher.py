"""A speech translation model as its own teacher: it reads transcripts where others listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from earvoice.training.halves import read_labels
from earvoice.training.recipe import READ_EXACTLY

if TYPE_CHECKING:
    import torch

    from earvoice.models.decoding import CachedDecoder
    from earvoice.models.translation import SpeechTranslationModel


class OwnTeacher(nn.Module):
    """The layers above the CTC head and the decoder, which training on text has taught to read.

    What it writes is what the model would say if it heard every word, in every language.

    Args:
        network: the model.

    Attributes:
        heard: how transcripts are shown to it.
    """

    heard = READ_EXACTLY

    def __init__(self, network: SpeechTranslationModel) -> None:
        super().__init__()
        self._network = network

    @property
    def decoder(self) -> CachedDecoder:
        """The model's decoder."""
        return self._network.decoder

    def encode(self, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the states of [B, S] labels, [B, S, d] float32; those of padding mean nothing."""
        return read_labels(self._network, labels, lengths, 0.0)
