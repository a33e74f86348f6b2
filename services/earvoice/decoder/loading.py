"""From a checkpoint to what the service serves."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from earvoice.decoder.model import ServedModel, TokenTable
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import BeamPlan, Opening, Strategy
from earvoice.decoder.strategies.search import SearchStrategy
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.device import chosen_device
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.models.wrapped.directory import is_wrapped, require_transformers

_LOG = logging.getLogger("earvoice.decoder.loading")
_WARM_UP_STATES = 32


@dataclass(frozen=True)
class LoadedDecoder:
    """A decoder that is ready to compute, and what is known about it."""

    model: ServedModel
    strategy: Strategy[Any]


def load_decoder(settings: DecoderSettings) -> LoadedDecoder:
    """Load the checkpoint, of our own or of another family; only its decoder is kept.

    Raises:
        ModelError: the checkpoint is missing, damaged, or asks for what is not computed here.
        DeviceError: a GPU is asked for and there is none.
    """
    torch.set_num_threads(settings.torch_threads)
    device = chosen_device(settings.device)
    if is_wrapped(settings.model_path):
        require_transformers()
        from earvoice.decoder.wrapped_loading import load_wrapped_decoder  # noqa: PLC0415

        wrapped, strategy = load_wrapped_decoder(settings, device)
        return LoadedDecoder(wrapped, strategy)
    checkpoint = load_checkpoint(
        settings.model_path,
        precision=settings.precision,
        device=device,
        source_language=settings.source_language,
        target_language=settings.target_language,
        compression=None if settings.compression == "checkpoint" else settings.compression,
    )
    model = describe(checkpoint, settings.model_name)
    search = SearchStrategy(checkpoint.network.decoder, device)
    _warm_up(model, search)
    _LOG.info(
        "model loaded",
        extra={
            "model": model.facts.name,
            "hash": model.facts.hash,
            "device": str(device),
            "dtype": str(checkpoint.dtype),
        },
    )
    return LoadedDecoder(model, search)


def describe(checkpoint: Checkpoint, name: str) -> ServedModel:
    """Return what sessions and callers must know about a checkpoint.

    Args:
        checkpoint: the model.
        name: to serve it by; empty takes its own.
    """
    config, vocabulary = checkpoint.config, checkpoint.target_vocabulary
    return ServedModel(
        facts=checkpoint.facts(name),
        language_tokens={
            language.code: (vocabulary.id_of(language.tag),) if language.tag else ()
            for language in config.target_languages
        },
        dimension=config.encoder.d_model,
        head_count=config.decoder.heads,
        tokens=_token_table(vocabulary),
    )


def _token_table(vocabulary: Vocabulary) -> TokenTable:
    ids = range(len(vocabulary))
    starts_word = tuple(vocabulary.starts_word(index) for index in ids)
    texts = tuple(
        vocabulary.text_bytes(index).removeprefix(b" " if starts_word[index] else b"")
        for index in ids
    )
    return TokenTable(texts, starts_word, EOS)


def _warm_up(model: ServedModel, strategy: SearchStrategy) -> None:
    """Compute once, so that the first session does not wait for one-time work."""
    size_bytes = _WARM_UP_STATES * model.dimension * ElementType.FLOAT32.size_bytes
    silence = StateBlock(
        StatesId(0, 1), _WARM_UP_STATES, model.dimension, ElementType.FLOAT32, bytes(size_bytes)
    )
    end = model.tokens.end_token
    layer = model.facts.default_attention_layer
    greedy = Opening((end,), (end,) * 8, layer, forbid_end=True)
    beam = Opening((end,), (), layer, forbid_end=True, beam=BeamPlan(5, max_new_tokens=2))
    strategy.step([strategy.begin(silence, opening)[0] for opening in (greedy, greedy, beam)])
