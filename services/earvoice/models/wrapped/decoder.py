"""A `transformers` decoder with the methods and token ids of our own: prefill, then steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from earvoice.models.decoding import Pivot
from earvoice.models.errors import ModelError
from earvoice.models.vocabulary import EOS, WORD_START, byte_alphabet
from earvoice.models.wrapped.families import Prompt


class WrappedCache:
    """Keys and values of one hypothesis, or of a beam's, kept by `transformers`.

    Attributes:
        states: [rows, S, d], what each attends to.
    """

    def __init__(self, states: torch.Tensor) -> None:
        self.states = states
        self.kept = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.length = 0

    @property
    def rows(self) -> int:
        return self.states.shape[0]

    def fresh(self) -> WrappedCache:
        return WrappedCache(self.states)

    def as_beam(self) -> WrappedCache:
        return self

    def select(self, rows: list[int]) -> None:
        """See `BeamCache.select`."""
        self.kept.batch_select_indices(torch.tensor(rows, device=self.states.device))
        self.states = self.states[:1].expand(len(rows), -1, -1)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ModelError(f"length is {length}; allowed: 0 to {self.length}")
        # A cache whose computation failed may hold more tokens than were counted.
        surplus = self.kept.get_seq_length() - length
        if surplus > 0:
            self.kept.self_attention_cache.crop(-surplus)
        self.length = length


class WrappedDecoder:
    """Reads tokens, returns logits and cross-attention; in our token ids."""

    is_transducer = False
    pivot_prompt: tuple[int, ...] = ()
    """See `CachedDecoder`."""

    def __init__(self, model: Any, order: tuple[int, ...], prompt: Prompt) -> None:
        """`order` has the tokenizer's id for each of ours."""
        self._model = model
        parameter = next(model.parameters())
        self._dtype, self._device = parameter.dtype, parameter.device
        self._order = torch.tensor(order, device=self._device)
        self._suppressed = [order.index(token) for token in prompt.suppressed]
        self._suppressed_first = [order.index(token) for token in prompt.suppressed_first]
        self._start = prompt.start
        self._prompt_tokens = 1 + max(map(len, prompt.language_tokens.values()))

    def stack_of(self, _: Sequence[int]) -> None:
        """All languages go through the same layers."""

    def is_translated(self, _: Sequence[int]) -> bool:
        """No language is translated from another's text."""
        return False

    def open_cache(
        self, states: torch.Tensor, _tokens: Sequence[int] = (), _pivot: Pivot | None = None
    ) -> WrappedCache:
        return WrappedCache(states.to(self._device, self._dtype)[None])

    @torch.inference_mode()
    def prefill(
        self,
        tokens: list[int],
        cache: WrappedCache,
        attention_layer: int,
        attention_heads: Sequence[int] = (),
        *,
        first_logits: int = 0,
        first_attention: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `CachedDecoder.prefill`."""
        logits, attention = self._read([tokens], cache, attention_layer, attention_heads)
        return logits[0, first_logits:], attention[0, first_attention:]

    @torch.inference_mode()
    def step(
        self,
        tokens: list[int],
        caches: Sequence[WrappedCache],
        attention_layers: list[int],
        attention_heads: Sequence[Sequence[int]],
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """See `CachedDecoder.step`; one by one, as `transformers` batches only equal lengths."""
        logits: list[torch.Tensor] = []
        rows: list[torch.Tensor] = []
        unread = iter(tokens)
        lengths = [cache.length for cache in caches]
        try:
            for cache, layer, heads in zip(caches, attention_layers, attention_heads, strict=True):
                own = [[token] for token in islice(unread, cache.rows)]
                found, attention = self._read(own, cache, layer, heads)
                logits.append(found[:, 0])
                rows += attention[:, 0]
        except Exception:
            # Undo the step of all caches, so that each can be stepped again.
            for cache, length in zip(caches, lengths, strict=True):
                cache.truncate(min(length, cache.length))
            raise
        return torch.cat(logits), rows

    def _read(
        self, tokens: list[list[int]], cache: WrappedCache, layer: int, heads: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[rows, n] tokens → logits [rows, n, V] and attention [rows, n, S], both float32."""
        ids = self._order[torch.tensor(tokens, device=self._device)]
        if cache.length == 0:
            ids[:, 0] = self._start
        output = self._model(
            decoder_input_ids=ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=cache.states),
            past_key_values=cache.kept,
            use_cache=True,
            output_attentions=True,
        )
        first = self._prompt_tokens - 1 - cache.length
        cache.length += ids.shape[1]
        logits = output.logits.float()[..., self._order]
        # The prompt itself is forced, and may hold what is never chosen.
        logits[:, max(0, first) :, self._suppressed] = -torch.inf
        if 0 <= first < ids.shape[1]:
            logits[:, first, self._suppressed_first] = -torch.inf
        weights = output.cross_attentions[layer - 1].float()
        chosen = weights[:, [head - 1 for head in heads]] if heads else weights
        return logits, chosen.mean(1)


def piece_table(
    tokenizer: Any, size: int, end: int, never_chosen: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[bytes, ...], tuple[bool, ...]]:
    """Read what each of our token ids stands for.

    The decoder service never chooses the ids 0 and 1 and ends with 2. The vocabularies of
    Speech2Text and mBART are like that. In Whisper's, where these ids are ordinary pieces, two
    tokens of the prompt and the end move to the front, all others after them.

    Args:
        size: how many ids the network knows; those unknown to the tokenizer write nothing.
        end: the tokenizer's id of the end of sentence.
        never_chosen: two of its ids that are never generated.

    Returns:
        For each of our ids the tokenizer's, the text, and whether it begins a word; see
            `WrappedModel`.
    """
    front = [*never_chosen, end]
    order = (*front, *(index for index in range(size) if index not in set(front)))
    pieces = tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))
    silent = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, *front}
    byte_of = byte_alphabet() if WORD_START not in "".join(pieces[EOS:]) else None
    texts, starts = [], []
    for theirs in order:
        piece = pieces[theirs] if theirs < len(pieces) and theirs not in silent else ""
        written = _written(piece, byte_of)
        starts.append(written.startswith(b" "))
        texts.append(written.removeprefix(b" "))
    return order, tuple(texts), tuple(starts)


def _written(piece: str, byte_of: dict[str, int] | None) -> bytes:
    """What a piece writes, with a leading space where it begins a word."""
    if byte_of is not None:
        return bytes(byte_of[character] for character in piece)
    return piece.replace(WORD_START, " ").encode()
