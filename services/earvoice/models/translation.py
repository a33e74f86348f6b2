"""The whole network: speech in, target text out, with a CTC transcript on the way."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from earvoice.models.config import ModelConfig
from earvoice.models.ctc import Encoded
from earvoice.models.decoding import CachedDecoder
from earvoice.models.encoder import PaperEncoder
from earvoice.models.errors import ModelError
from earvoice.models.families import family_of
from earvoice.models.inference import check_inference_dtype, prepare_linears
from earvoice.models.lstm import LstmDecoder

SightMask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the states' CTC labels [B, S] and tokens [B, L] to what each row sees, [B, L, S] bool."""


class SpeechTranslationModel(nn.Module):
    """Encoder with CTC compression and autoregressive decoder (Papi 2022, Papi 2023)."""

    def __init__(self, config: ModelConfig, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.encoder = family_of(config.encoder.architecture).encoder(config, dropout)
        self.decoder: CachedDecoder | LstmDecoder = (
            LstmDecoder(config, dropout)
            if config.decoder.architecture == "lstm"
            else CachedDecoder(config, dropout)
        )

    def forward(
        self,
        features: torch.Tensor,
        lengths: torch.Tensor,
        previous_tokens: torch.Tensor,
        mask: SightMask | None = None,
    ) -> tuple[torch.Tensor, Encoded]:
        """Teacher-forced pass over a padded batch.

        Args:
            previous_tokens: [B, L] int64, start token first, padded on the right.
            mask: which part of the source each token may see; None is all of it.

        Returns:
            [B, L, V] float32 logits, of which row t predicts token t + 1; and the encoded source.
        """
        encoded = self.encoder(features, lengths)
        visible = None if mask is None else mask(encoded.labels, previous_tokens)
        logits = self.decoder(previous_tokens, encoded.states, encoded.lengths, visible)
        return logits, encoded

    @property
    def papers_encoder(self) -> PaperEncoder:
        """The encoder, for code that works only on the papers' networks."""
        _ = self.config.papers_encoder
        assert isinstance(self.encoder, PaperEncoder)  # noqa: S101 - the configuration says so
        return self.encoder

    @property
    def transformer_decoder(self) -> CachedDecoder:
        """The decoder, for code that works only on a Transformer."""
        if not isinstance(self.decoder, CachedDecoder):
            architecture = self.config.decoder.architecture
            raise ModelError(f"decoder is {architecture!r}; allowed here: 'transformer'")
        return self.decoder

    def prepare_inference(self, dtype: torch.dtype) -> None:
        """Turn this network into one that only infers, faster: see `earvoice.models.inference`.

        Its weights are packed where they are: move it to its device first.

        Args:
            dtype: of the linear layers, one of `INFERENCE_DTYPES`.
        """
        check_inference_dtype(dtype)
        self.eval().requires_grad_(requires_grad=False)
        prepare_linears(self, dtype)


def parameter_count(config: ModelConfig) -> int:
    """Parameters of a whole model, counted once each.

    Counted on a network without storage: one prepared for inference has packed some away.
    """
    return sum(parameter.numel() for parameter in network_without_storage(config).parameters())


def tied_parameter_count(config: ModelConfig) -> int:
    """Parameters that are embeddings and output projection at once."""
    return config.target_pieces * config.encoder.d_model if config.decoder.tied_embeddings else 0


def network_without_storage(config: ModelConfig) -> SpeechTranslationModel:
    """A network of names and shapes alone, on the device "meta"."""
    with torch.device("meta"), _NoInitialisation():
        return SpeechTranslationModel(config)


class _NoInitialisation(TorchFunctionMode):
    """Leaves out `torch.nn.init`.

    Random numbers without storage make torch load its compiler: seconds, and a hundred megabytes.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)
