"""What is searched for and shown: the beam's size, and whose cross-attention is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from earvoice.decoder.command import GenerateCommand, OpenCommand
from earvoice.decoder.model import ServedModel
from earvoice.runtime.errors import InvalidFieldError

MAX_BEAM_SIZE = 16
"""Most hypotheses that a beam may keep."""


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """What was agreed on for all generations, or for one.

    Attributes:
        attention_layer: decoder layer whose cross-attention is told, from 1.
        attention_heads: heads whose mean is told, from 1; empty means all.
        beam_size: hypotheses kept; 1 is greedy.
    """

    attention_layer: int
    attention_heads: tuple[int, ...]
    beam_size: int


def terms_of(command: OpenCommand, model: ServedModel) -> SearchTerms:
    """Return what a session is opened with, the model's defaults filled in.

    Raises:
        InvalidFieldError: a field is out of range.
    """
    _check_layer("open.attention_layer", command.attention_layer, model)
    _check_heads("open.attention_heads", command.attention_heads, model)
    _check_beam_size("open.beam_size", command.beam_size)
    return SearchTerms(
        command.attention_layer or model.facts.default_attention_layer,
        command.attention_heads,
        command.beam_size or 1,
    )


def terms_for(command: GenerateCommand, opened: SearchTerms, model: ServedModel) -> SearchTerms:
    """Return the terms of one generation: those of open, but for what the command replaces.

    Raises:
        InvalidFieldError: a field is out of range, or there are heads without their layer.
    """
    heads = command.attention_heads
    _check_layer("generate.attention_layer", command.attention_layer, model)
    _check_heads("generate.attention_heads", heads, model)
    _check_beam_size("generate.beam_size", command.beam_size)
    terms = replace(opened, beam_size=command.beam_size or opened.beam_size)
    if command.attention_layer:
        return replace(terms, attention_layer=command.attention_layer, attention_heads=heads)
    if heads:
        raise InvalidFieldError(
            "generate.attention_heads", list(heads), "none without generate.attention_layer"
        )
    return terms


def _check_layer(field: str, layer: int, model: ServedModel) -> None:
    layers = model.facts.decoder_layers
    if not 0 <= layer <= layers:
        raise InvalidFieldError(field, layer, f"1 to {layers}, or 0 for default")


def _check_heads(field: str, heads: Sequence[int], model: ServedModel) -> None:
    wrong = [head for head in heads if not 1 <= head <= model.head_count]
    if wrong or len(set(heads)) < len(heads):
        raise InvalidFieldError(field, list(heads), f"1 to {model.head_count}, each once")


def _check_beam_size(field: str, size: int) -> None:
    if not 0 <= size <= MAX_BEAM_SIZE:
        raise InvalidFieldError(field, size, f"1 to {MAX_BEAM_SIZE}, or 0 for default")
