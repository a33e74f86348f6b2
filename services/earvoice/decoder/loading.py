"""Loading a checkpoint for the service, and measuring what a live session costs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from earvoice.decoder.search import SearchStrategy, SequentialStrategy
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import (
    BeamPlan,
    Prompt,
    ServedModel,
    StateBlock,
    Strategy,
    TokenTable,
    block_of,
)
from earvoice.models.checkpoint import Checkpoint
from earvoice.models.decoding import CachedDecoder
from earvoice.models.serving import load_served
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.runtime.session_limit import SegmentCost, fit_cost

_LOG = logging.getLogger("earvoice.decoder.loading")
_WARM_UP_STATES = 32

# A segment in the middle of an utterance of 20 s; the shipped model has 25 states a second.
STATES = 250
PREFIX_TOKENS = 40
DRAFT_TOKENS = 8
STEPS = 8

MANY = 8
REPEATS = 3


class LoadedDecoder(NamedTuple):
    """A decoder that is ready to compute, and what is known about it."""

    model: ServedModel
    strategy: Strategy


def load_decoder(settings: DecoderSettings) -> LoadedDecoder:
    """Load the checkpoint, our own or another family's; only its decoder is kept."""
    loaded, device = load_served(settings, without="encoder")
    computed: dict[str, str] = {}
    strategy: Strategy
    if isinstance(loaded, Checkpoint):
        model = describe(loaded, settings.model_name)
        decoder = loaded.network.decoder
        if isinstance(decoder, CachedDecoder):
            strategy = SearchStrategy(decoder)
            _warm_up(model, strategy)
        else:
            strategy = SequentialStrategy(decoder)
        computed = {"device": str(device), "dtype": str(loaded.dtype)}
    else:
        model = ServedModel(
            description=loaded.description,
            language_tokens=loaded.language_tokens,
            dimension=loaded.encoder.dimension,
            tokens=TokenTable(loaded.texts, loaded.starts_word, EOS),
            max_tokens=loaded.max_tokens - 1 - max(map(len, loaded.language_tokens.values())),
        )
        strategy = SearchStrategy(loaded.decoder)
    served = {"model": model.description.name, "hash": model.description.hash}
    _LOG.info("model loaded", extra=served | computed)
    return LoadedDecoder(model, strategy)


def describe(checkpoint: Checkpoint, name: str) -> ServedModel:
    config, vocabulary = checkpoint.config, checkpoint.target_vocabulary
    return ServedModel(
        description=checkpoint.describe(name),
        language_tokens={
            language.code: (vocabulary.id_of(language.tag),) if language.tag else ()
            for language in config.target_languages
        },
        dimension=config.encoder.d_model,
        tokens=_token_table(vocabulary),
        max_tokens=config.decoder.max_new_tokens,
        least_empty_probability=config.decoder.least_empty_probability,
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
    layer = model.description.default_attention_layer
    greedy = Prompt((end,), (end,) * 8, layer, forbid_end=True)
    beam = Prompt((end,), (), layer, forbid_end=True, beam=BeamPlan(5, max_new_tokens=2))
    silence = _silence(model, _WARM_UP_STATES)
    strategy.step([strategy.begin(silence, prompt)[0] for prompt in (greedy, greedy, beam)])


def _silence(model: ServedModel, count: int) -> StateBlock:
    return block_of(np.zeros((count, model.dimension), np.float32))


def measure_segment_cost(
    model: ServedModel, strategy: Strategy, clock_s: Callable[[], float]
) -> SegmentCost:
    """Return the cost of one prefill per session, and of steps that all sessions share.

    Where the model translates a text that it writes in the source language, that text is prefilled
    and stepped as well. Measured on silence; the fastest of some repeats counts, since other load
    can only slow a computation down.
    """
    end = model.tokens.end_token
    layer = model.description.default_attention_layer
    starts = [start for start in (strategy.source_prompt, (end,)) if start]
    prefix_tokens = PREFIX_TOKENS
    if model.max_tokens is not None:
        # One run is stepped alone and with the others.
        prefix_tokens = min(prefix_tokens, model.max_tokens - DRAFT_TOKENS - 2 * REPEATS)
    runs: dict[tuple[int, ...], list[Any]] = {start: [] for start in starts}
    prefills_s = []
    for _ in range(MANY):
        states, prefill_s = _silence(model, STATES), 0.0
        for start in starts:
            forced = (*start, *(end,) * prefix_tokens)
            prompt = Prompt(forced, (end,) * DRAFT_TOKENS, layer, forbid_end=True)
            source = strategy.prepare(states, forced)
            while source is not None and not source.is_over:
                strategy.step([source])
            began_s = clock_s()
            runs[start].append(strategy.begin(states, prompt)[0])
            prefill_s += clock_s() - began_s
        prefills_s.append(prefill_s)

    def step_s(runs: list[Any]) -> float:
        durations_s = []
        for _ in range(REPEATS):
            began_s = clock_s()
            strategy.step(runs)
            durations_s.append(clock_s() - began_s)
        return min(durations_s)

    one_s = STEPS * sum(step_s(own[:1]) for own in runs.values())
    many_s = STEPS * sum(step_s(own) for own in runs.values())
    return fit_cost(min(prefills_s), one_s, many_s, MANY)
