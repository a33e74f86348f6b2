"""What a family's decoder is made to begin with, by target language."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from earvoice.models.errors import ModelConfigError


@dataclasses.dataclass(frozen=True)
class Prompt:
    """How a hypothesis begins, in the tokenizer's ids."""

    start: int
    """Stands at the first position."""
    end: int
    language_tokens: Mapping[str, tuple[int, ...]]
    """BCP-47 tag to the tokens forced after the start."""
    suppressed: tuple[int, ...] = ()
    """Never chosen."""
    suppressed_first: tuple[int, ...] = ()
    """Never chosen as the first token after the prompt."""

    def check(self, vocabulary_size: int) -> None:
        """Refuse ids that the network does not know.

        Raises:
            ModelConfigError: naming one.
        """
        forced = (token for tokens in self.language_tokens.values() for token in tokens)
        for token in (self.start, self.end, *forced, *self.suppressed, *self.suppressed_first):
            if not 0 <= token < vocabulary_size:
                message = (
                    f"generation config names token {token}; allowed: 0 to {vocabulary_size - 1}"
                )
                raise ModelConfigError(message)


def prompt_of(model: Any, tokenizer: Any, source_language: str, target_language: str) -> Prompt:
    """Read a model's generation settings.

    Args:
        model: of `transformers`, with its generation config.
        tokenizer: its tokenizer.
        source_language: BCP-47 tag of what is spoken, which Whisper must be told.
        target_language: BCP-47 tag, for a model that does not say what it writes.

    Raises:
        ModelConfigError: the model does not translate, or not from this language.
    """
    settings = model.generation_config
    start, end = settings.decoder_start_token_id, settings.eos_token_id
    if isinstance(end, list):
        end = end[0]
    if not isinstance(start, int) or not isinstance(end, int):
        message = f"decoder_start_token_id and eos_token_id are {start} and {end}; allowed: ids"
        raise ModelConfigError(message)
    if model.config.model_type == "whisper":
        languages = {"en": _whisper_tokens(settings, source_language)}
    else:
        languages = _tagged_languages(tokenizer, start) or {target_language: ()}
    return Prompt(
        start,
        end,
        languages,
        tuple(settings.suppress_tokens or ()),
        tuple(settings.begin_suppress_tokens or ()),
    )


def _whisper_tokens(settings: Any, source_language: str) -> tuple[int, ...]:
    """Source language, task and "no timestamps": Whisper translates to English alone."""
    languages = getattr(settings, "lang_to_id", None) or {}
    tasks = getattr(settings, "task_to_id", None) or {}
    if "translate" not in tasks:
        raise ModelConfigError("this Whisper has no task 'translate'; allowed: a multilingual one")
    token = languages.get(f"<|{source_language.partition('-')[0].lower()}|>")
    if token is None:
        known = ", ".join(sorted(tag.strip("<|>") for tag in languages))
        message = f"source_language is {source_language!r}; allowed for this Whisper: {known}"
        raise ModelConfigError(message)
    return token, tasks["translate"], settings.no_timestamps_token_id


def _tagged_languages(tokenizer: Any, start: int) -> dict[str, tuple[int, ...]]:
    """The languages of a multilingual vocabulary, `de_DE` or `de`, by the token that asks for each.

    A decoder that starts with a language's token writes that language alone.
    """
    codes: Mapping[str, int] = getattr(tokenizer, "lang_code_to_id", None) or {}
    by_tag = {code.split("_")[0]: index for code, index in codes.items()}
    alone: dict[str, tuple[int, ...]] = {tag: () for tag, index in by_tag.items() if index == start}
    return alone or {tag: (index,) for tag, index in by_tag.items()}
