"""From a checkpoint of another family to what the decoder service serves."""

from __future__ import annotations

import logging

import torch

from earvoice.decoder.model import ServedModel, TokenTable
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategies.wrapped import WrappedStrategy
from earvoice.models.precision import chosen_dtype
from earvoice.models.vocabulary import EOS
from earvoice.models.wrapped.loading import load_wrapped

_LOG = logging.getLogger("earvoice.decoder.loading")


def load_wrapped_decoder(
    settings: DecoderSettings, device: torch.device
) -> tuple[ServedModel, WrappedStrategy]:
    """Load the checkpoint; only its decoder is used.

    Raises:
        ModelError: the checkpoint is missing, damaged, or of a family that is not computed here.
        DeviceError: the device does not compute in the precision asked for.
    """
    model = load_wrapped(
        settings.model_path,
        dtype=chosen_dtype(settings.precision, device, bears_bfloat16=False),
        device=device,
        source_language=settings.source_language,
        target_language=settings.target_language,
        compression=settings.compression,
        name=settings.model_name,
    )
    facts = model.facts
    _LOG.info("model loaded", extra={"model": facts.name, "hash": facts.hash})
    served = ServedModel(
        facts=facts,
        language_tokens=model.language_tokens,
        dimension=model.hearing.dimension,
        head_count=model.head_count,
        tokens=TokenTable(model.pieces.texts, model.pieces.starts_word, EOS),
        max_tokens=model.max_tokens - 1 - max(map(len, model.language_tokens.values())),
    )
    return served, WrappedStrategy(model.decoder)
