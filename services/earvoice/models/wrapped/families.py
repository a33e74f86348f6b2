"""The families that `transformers` computes, a row each: what differs, and their prompts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from transformers import (
    Speech2TextForConditionalGeneration,
    SpeechEncoderDecoderModel,
    WhisperForConditionalGeneration,
)

from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.errors import ModelError

MINIMUM_SAMPLES = SAMPLE_RATE_HZ // 10
"""Less than 100 ms does not fill these encoders' convolutions, and has no statistics."""
MEL_FRAME_SAMPLES = 160
GENERATION_FILE = "generation_config.json"

LanguageTokens = Mapping[str, tuple[int, ...]]
"""BCP-47 tag of a target to the tokens forced after the start."""


@dataclasses.dataclass(frozen=True)
class WrappedFamily:
    """What differs between families; `model_type` of a checkpoint's configuration names the row."""

    network: Any
    """The class of `transformers`."""
    state_samples: Callable[[Any], int]
    """From the encoder's configuration: 16 kHz samples that one state stands for."""
    languages: Callable[[Any, Any, str, str], LanguageTokens]
    """From the network, its tokenizer, source and wanted target language."""
    maximum_samples: Callable[[Any, Any], int | None] = lambda _config, _extractor: None
    """From the encoder's configuration and the feature extractor: longest sound; None is any."""
    fills_up: bool = False
    """Whether sound is padded to the longest; states of the padding are then left out."""


class WrappedEncoder:
    """Encodes whole utterances; `maximum_samples` is None where the encoder takes any."""

    def __init__(self, model: Any, extractor: Any) -> None:
        family = WRAPPED_FAMILIES[model.config.model_type]
        config = encoder_config(model)
        self._encoder = model.get_encoder()
        self._extractor = extractor
        self._fills_up = family.fills_up
        self.state_samples = family.state_samples(config)
        self.maximum_samples = family.maximum_samples(config, extractor)
        width = getattr(config, "output_hidden_size", None) or getattr(config, "d_model", None)
        self.dimension = int(width or config.hidden_size)

    @torch.inference_mode()
    def states(self, sound: np.ndarray) -> torch.Tensor:
        """[n] float32 at 16 kHz in [-1, 1] → [S, d] float32; none for less than 100 ms."""
        if self.maximum_samples is not None and len(sound) > self.maximum_samples:
            raise ModelError(f"sound has {len(sound)} samples; allowed: {self.maximum_samples}")
        if len(sound) < MINIMUM_SAMPLES:
            return torch.zeros(0, self.dimension)
        # Normalising digital silence divides by zero; what does not vary equals its mean, so 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            extracted = self._extractor(sound, sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
        parameter = next(self._encoder.parameters())
        inputs = extracted[self._extractor.model_input_names[0]].nan_to_num(0.0, 0.0, 0.0)
        states: torch.Tensor = self._encoder(inputs.to(parameter)).last_hidden_state[0].float()
        if self._fills_up:
            states = states[: math.ceil(len(sound) / self.state_samples)]
        return states


@dataclasses.dataclass(frozen=True)
class Prompt:
    """How a hypothesis begins, in the tokenizer's ids."""

    start: int
    """The token at the first position."""
    end: int
    language_tokens: LanguageTokens
    suppressed: tuple[int, ...] = ()
    """Never chosen."""
    suppressed_first: tuple[int, ...] = ()
    """Never chosen as the first token after the prompt."""


def prompt_of(model: Any, tokenizer: Any, source_language: str, target_language: str) -> Prompt:
    """Read a model's generation settings.

    Args:
        target_language: BCP-47 tag, for a model that does not say what it writes.
    """
    settings = model.generation_config
    start, end = settings.decoder_start_token_id, settings.eos_token_id
    if isinstance(end, list):
        end = end[0]
    if not isinstance(start, int) or not isinstance(end, int):
        raise ModelError(
            f"{GENERATION_FILE}: decoder_start_token_id and eos_token_id are {start} and {end}; "
            "allowed: ids"
        )
    family = WRAPPED_FAMILIES[model.config.model_type]
    prompt = Prompt(
        start,
        end,
        family.languages(model, tokenizer, source_language, target_language),
        tuple(settings.suppress_tokens or ()),
        tuple(settings.begin_suppress_tokens or ()),
    )
    size = decoder_config(model).vocab_size
    forced = (token for tokens in prompt.language_tokens.values() for token in tokens)
    for token in (start, end, *forced, *prompt.suppressed, *prompt.suppressed_first):
        if not 0 <= token < size:
            raise ModelError(f"{GENERATION_FILE} names token {token}; allowed: 0 to {size - 1}")
    return prompt


def encoder_config(model: Any) -> Any:
    return getattr(model.config, "encoder", model.config)


def decoder_config(model: Any) -> Any:
    return getattr(model.config, "decoder", model.config)


def _whisper_languages(
    model: Any, tokenizer: Any, source_language: str, target_language: str
) -> LanguageTokens:
    """English by translation, the speaker's language by transcription; only English for `….en`."""
    del tokenizer, target_language
    settings = model.generation_config
    without_times = getattr(settings, "no_timestamps_token_id", None)
    if not isinstance(without_times, int):
        raise ModelError(
            f"{GENERATION_FILE}: no_timestamps_token_id is {without_times!r}; allowed for a "
            "Whisper: an id. The file comes with the model: it must be in the folder"
        )
    languages = getattr(settings, "lang_to_id", None) or {}
    if not languages and getattr(settings, "is_multilingual", False):
        raise ModelError(f"this Whisper is multilingual; {GENERATION_FILE} needs 'lang_to_id'")
    if not languages:
        return {"en": (without_times,)}
    source = source_language.partition("-")[0].lower()
    spoken = languages.get(f"<|{source}|>")
    if spoken is None:
        known = ", ".join(sorted(tag.strip("<|>") for tag in languages))
        message = f"source_language is {source_language!r}; allowed for this Whisper: {known}"
        raise ModelError(message)
    tasks = getattr(settings, "task_to_id", None) or {}
    targets = {"en": "translate", source: "transcribe"}
    tokens = {
        target: (spoken, tasks[task], without_times)
        for target, task in targets.items()
        if task in tasks
    }
    if not tokens:
        allowed = "a model with 'translate' or 'transcribe'"
        raise ModelError(f"this Whisper has the tasks {sorted(tasks)}; allowed: {allowed}")
    return tokens


def _tagged_languages(
    model: Any, tokenizer: Any, source_language: str, target_language: str
) -> LanguageTokens:
    """The languages of a multilingual vocabulary, `de_DE` or `de`, by the token that selects each.

    A decoder that starts with a language's token writes only that language; for one without any,
    the caller says which.
    """
    del source_language
    start = model.generation_config.decoder_start_token_id
    codes: Mapping[str, int] = getattr(tokenizer, "lang_code_to_id", None) or {}
    by_tag = {code.split("_")[0]: index for code, index in codes.items()}
    alone: LanguageTokens = {tag: () for tag, index in by_tag.items() if index == start}
    return alone or {tag: (index,) for tag, index in by_tag.items()} or {target_language: ()}


def _wav2vec_state_samples(config: Any) -> int:
    adapters = config.adapter_stride**config.num_adapter_layers if config.add_adapter else 1
    return int(math.prod(config.conv_stride) * adapters)


WRAPPED_FAMILIES: dict[str, WrappedFamily] = {
    "speech_to_text": WrappedFamily(
        Speech2TextForConditionalGeneration,
        state_samples=lambda config: MEL_FRAME_SAMPLES << config.num_conv_layers,
        languages=_tagged_languages,
        maximum_samples=lambda config, _: config.max_source_positions * MEL_FRAME_SAMPLES,
    ),
    "speech-encoder-decoder": WrappedFamily(
        SpeechEncoderDecoderModel,
        state_samples=_wav2vec_state_samples,
        languages=_tagged_languages,
    ),
    "whisper": WrappedFamily(
        WhisperForConditionalGeneration,
        state_samples=lambda _config: 2 * MEL_FRAME_SAMPLES,
        languages=_whisper_languages,
        maximum_samples=lambda _config, extractor: int(extractor.n_samples),
        fills_up=True,
    ),
}
