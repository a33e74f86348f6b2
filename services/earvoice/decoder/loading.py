"""From a checkpoint to what the service serves, and what a live session of it costs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from earvoice.decoder.search import SearchStrategy, WrappedStrategy
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import (
    BeamPlan,
    ElementType,
    Prompt,
    ServedModel,
    StateBlock,
    StatesId,
    Strategy,
    TokenTable,
)
from earvoice.models.checkpoint import Checkpoint, load_checkpoint
from earvoice.models.precision import chosen_device, chosen_dtype
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.models.wrapped.directory import is_wrapped, require_transformers
from earvoice.runtime.session_limit import SegmentCost, fit_cost

_LOG = logging.getLogger("earvoice.decoder.loading")
_WARM_UP_STATES = 32

# A segment in the middle of an utterance of 20 s, in the shipped model's language.
STATES = 100
PREFIX_TOKENS = 40
DRAFT_TOKENS = 8
STEPS = 8

MANY = 8
REPEATS = 3


class LoadedDecoder(NamedTuple):
    """A decoder that is ready to compute, and what is known about it."""

    model: ServedModel
    strategy: Strategy[Any]


def load_decoder(settings: DecoderSettings) -> LoadedDecoder:
    """Load the checkpoint, of our own or of another family; only its decoder is kept."""
    torch.set_num_threads(settings.torch_threads)
    device = chosen_device(settings.device)
    if is_wrapped(settings.model_path):
        return _load_wrapped(settings, device)
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


def _load_wrapped(settings: DecoderSettings, device: torch.device) -> LoadedDecoder:
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
    facts = model.facts
    _LOG.info("model loaded", extra={"model": facts.name, "hash": facts.hash})
    served = ServedModel(
        facts=facts,
        language_tokens=model.language_tokens,
        dimension=model.encoder.dimension,
        head_count=model.head_count,
        tokens=TokenTable(model.pieces.texts, model.pieces.starts_word, EOS),
        max_tokens=model.max_tokens - 1 - max(map(len, model.language_tokens.values())),
    )
    return LoadedDecoder(served, WrappedStrategy(model.decoder))


def describe(checkpoint: Checkpoint, name: str) -> ServedModel:
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
        max_tokens=config.decoder.max_new_tokens,
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
    end = model.tokens.end_token
    layer = model.facts.default_attention_layer
    greedy = Prompt((end,), (end,) * 8, layer, forbid_end=True)
    beam = Prompt((end,), (), layer, forbid_end=True, beam=BeamPlan(5, max_new_tokens=2))
    silence = _silence(model, _WARM_UP_STATES)
    strategy.step([strategy.begin(silence, prompt)[0] for prompt in (greedy, greedy, beam)])


def _silence(model: ServedModel, count: int) -> StateBlock:
    data = bytes(count * model.dimension * ElementType.FLOAT32.size_bytes)
    return StateBlock(StatesId(0, 1), count, model.dimension, ElementType.FLOAT32, data)


def measure_segment_cost(
    model: ServedModel, strategy: Strategy[Any], clock_s: Callable[[], float]
) -> SegmentCost:
    """Return the cost of one prefill a session, and of steps that all sessions share.

    Measured on silence; the fastest of some repeats counts, since what else the machine does can
    only slow a computation down.
    """
    end = model.tokens.end_token
    layer = model.facts.default_attention_layer
    forced = (end,) * (1 + PREFIX_TOKENS)
    prompt = Prompt(forced, (end,) * DRAFT_TOKENS, layer, forbid_end=True)
    prefills_s, runs = [], []
    for _ in range(MANY):
        began_s = clock_s()
        runs.append(strategy.begin(_silence(model, STATES), prompt)[0])
        prefills_s.append(clock_s() - began_s)

    def step_s(runs: list[Any]) -> float:
        durations_s = []
        for _ in range(REPEATS):
            began_s = clock_s()
            strategy.step(runs)
            durations_s.append(clock_s() - began_s)
        return min(durations_s)

    one_s, many_s = step_s(runs[:1]), step_s(runs)
    return fit_cost(min(prefills_s), STEPS * one_s, STEPS * many_s, MANY)
