"""Incremental decoding, with the keys and values of earlier tokens cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch.nn import functional

from earvoice.models.errors import ModelError
from earvoice.models.inference import InferenceLinear, TwoPartProduct, prepare_linears
from earvoice.models.lexicon import Lexicon, SourceWords
from earvoice.models.transformer import DecoderStack, TransformerDecoder, TransformerLayer
from earvoice.models.vocabulary import EOS, PAD

FIRST_CAPACITY_TOKENS = 64
"""Capacity of a new cache for keys and values; it doubles when full."""
EXACT_LOGITS = 8
"""How many of the likeliest pieces' logits are recomputed where products round."""

_SCORES_IN_A_GROUP = 64
"""`likeliest` compares the largest of so many scores before it looks at each of them."""


def likeliest(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest of each row of [R, V], largest first: values and indices, [R, count].

    The same as `topk`, several times faster for a vocabulary: what belongs to the largest is in one
    of the `count` groups with the largest maxima. Which of equal scores are taken is not defined.
    """
    rows, pieces = scores.shape
    group_count = pieces // _SCORES_IN_A_GROUP
    if group_count <= count:
        values, indices = scores.topk(count)
        return values, indices
    grouped = group_count * _SCORES_IN_A_GROUP
    groups = scores[:, :grouped].view(rows, group_count, _SCORES_IN_A_GROUP)
    first = groups.amax(-1).topk(count).indices * _SCORES_IN_A_GROUP
    within = torch.arange(_SCORES_IN_A_GROUP, device=scores.device)
    ungrouped = torch.arange(grouped, pieces, device=scores.device).expand(rows, -1)
    places = torch.cat(((first[:, :, None] + within).flatten(1), ungrouped), dim=1)
    values, best = scores.gather(1, places).topk(count)
    return values, places.gather(1, best)


@dataclass(frozen=True)
class Pivot:
    """A text in the source language, written from states, for other languages to translate.

    Attributes:
        tokens: P of them, the end of sentence last unless the text was cut.
        log_probabilities: P of them, natural.
        attention: [P, S] float32, each token's attention to the states; rows add up to 1.
        copied: [n] int64, its tokens outside the shortlist; a translation may use them even so.
        words: those of its words that are in the lexicon; None without one, or where none is.
    """

    tokens: list[int]
    log_probabilities: list[float]
    attention: torch.Tensor
    copied: torch.Tensor | None = None
    words: SourceWords | None = None


class DecoderCache:
    """Keys and values of one hypothesis over one utterance's states, for all layers.

    Attributes:
        visible: [rows, tokens] bool, which tokens each row of a step sees; None means all.
        pivot: the text that the layers attend to instead of states, if the language translates one.
        alignment: [n, P] float32, attention to the pivot where the last pass has made logits; only
            where the pivot has `words`.
    """

    visible: torch.Tensor | None = None
    alignment: torch.Tensor | None = None

    def __init__(
        self,
        cross_keys: torch.Tensor,
        cross_values: torch.Tensor,
        stack: DecoderStack,
        buffer: torch.Tensor | None = None,
        pivot: Pivot | None = None,
    ) -> None:
        """`cross_keys` and `cross_values` [layers, heads, S, d_head] come from the encoder states.

        The layers of `stack` have computed them, and read the tokens as well. `buffer` [2, text
        layers, heads, capacity, d_head] is for the tokens' own. With a `pivot` S is P.
        """
        self.cross_keys = cross_keys
        self.cross_values = cross_values
        self.stack = stack
        self.pivot = pivot
        if buffer is None:
            _, heads, _, width = cross_keys.shape
            shape = (2, stack.text_layers, heads, FIRST_CAPACITY_TOKENS, width)
            buffer = cross_keys.new_empty(shape)
        self._take(buffer)
        self.length = 0

    def over_states(self, weights: torch.Tensor) -> torch.Tensor:
        """[…, what is attended to] → […, S]: weights on a pivot go to its tokens' states."""
        return weights if self.pivot is None else weights @ self.pivot.attention

    def aligns(self, layer: int) -> bool:
        """Whether a layer, counted from 0, says which word of the pivot is being translated."""
        has_words = self.pivot is not None and self.pivot.words is not None
        return has_words and layer == self.cross_keys.shape[0] - 1

    @property
    def rows(self) -> int:
        """Number of hypotheses; a step extends each by one token."""
        return 1

    @property
    def position(self) -> int:
        return self.length

    def fresh(self) -> DecoderCache:
        """A cache for another hypothesis over the same states."""
        return DecoderCache(self.cross_keys, self.cross_values, self.stack, pivot=self.pivot)

    def as_beam(self) -> BeamCache:
        return BeamCache(self)

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens; growing copies, so capacity doubles."""
        capacity = self.buffer.shape[3]
        if self.length + count > capacity:
            self._grow(max(2 * capacity, self.length + count))

    def extend(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one layer's keys and values, [heads, n, d_head], after the counted tokens.

        Returns:
            Views of all keys and all values of that layer, [heads, length + n, d_head].
        """
        end = self.length + keys.shape[1]
        kept_keys, kept_values = self._rows[layer]
        kept_keys[:, self.length : end] = keys
        kept_values[:, self.length : end] = values
        return kept_keys[:, :end], kept_values[:, :end]

    def advance(self, count: int) -> None:
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all tokens after the first `length` (rejected drafts)."""
        if not 0 <= length <= self.length:
            raise ModelError(f"length is {length}; allowed: 0 to {self.length}")
        self.length = length

    def _grow(self, capacity: int) -> None:
        grown = self.buffer.new_empty((*self.buffer.shape[:3], capacity, self.buffer.shape[4]))
        grown[:, :, :, : self.length] = self.buffer[:, :, :, : self.length]
        self._take(grown)

    def _take(self, buffer: torch.Tensor) -> None:
        """Use a buffer; each layer's views are made once, since many steps use them."""
        self.buffer = buffer
        self._rows = list(zip(buffer[0].unbind(), buffer[1].unbind(), strict=True))


class BeamCache(DecoderCache):
    """Keys and values of a tree of tokens whose leaves are the beam.

    Every token is stored once; a mask says which tokens each row of the beam descends from. So
    selecting rows changes the mask and copies no keys, and all rows of a beam are computed in one
    product. Tokens that no row descends from any more are dropped when the buffer is full.
    """

    def __init__(self, trunk: DecoderCache) -> None:
        super().__init__(
            trunk.cross_keys, trunk.cross_values, trunk.stack, trunk.buffer, trunk.pivot
        )
        self.length = self._position = trunk.length
        if trunk.alignment is not None:
            self.alignment = trunk.alignment[-1:]
        self._ancestors = torch.ones(
            1, trunk.length, dtype=torch.bool, device=trunk.cross_keys.device
        )

    @property
    def rows(self) -> int:
        return self._ancestors.shape[0]

    @property
    def position(self) -> int:
        return self._position

    def select(self, rows: list[int]) -> None:
        """Go on with these rows, in this order; a row may occur several times or not at all."""
        index = torch.tensor(rows, device=self._ancestors.device)
        self._ancestors = self._ancestors[index]

    def reserve(self, count: int) -> None:
        """Make room for one more token per row; `count` must be the number of rows."""
        capacity = self.buffer.shape[3]
        if self.length + count > capacity:
            self._drop_dead()
            # Otherwise the room made by dropping would soon be used up again.
            if 2 * (self.length + count) > capacity:
                self._grow(2 * capacity)
        own = torch.eye(count, dtype=torch.bool, device=self._ancestors.device)
        self.visible = torch.cat((self._ancestors, own), dim=1)

    def advance(self, count: int) -> None:
        super().advance(count)
        self._position += 1
        if self.visible is not None:
            self._ancestors = self.visible

    def _drop_dead(self) -> None:
        live = self._ancestors.any(0).nonzero()[:, 0]
        self.buffer[:, :, :, : len(live)] = self.buffer[:, :, :, live]
        self._ancestors = self._ancestors[:, live]
        self.length = len(live)


def decoding_layers(stack: DecoderStack) -> list[TransformerLayer]:
    return [layer for layer in stack.layers if isinstance(layer, TransformerLayer)]


def _places(stack: DecoderStack) -> Iterator[tuple[TransformerLayer, int, int]]:
    """Each layer, its index among those that attend to the text, and among those to the source."""
    text = source = 0
    for layer in decoding_layers(stack):
        yield layer, text, source
        text, source = text + layer.to_itself, source + layer.to_source


class TiedProjection:
    """Logits of all pieces or of some, as products with the embeddings, packed for inference.

    Other pieces get minus infinity, and nothing is computed for them. Embeddings that are stored in
    8 bits are multiplied as they are stored, for inputs of any precision.

    Where products are rounded to fewer bits, the likeliest pieces still get their float32 logits.
    In bf16 a logit of 20 is a multiple of 1/8, so the best are often equal, and the first of them
    would be taken.
    """

    def __init__(
        self, embeddings: torch.Tensor, dtype: torch.dtype, pieces: torch.Tensor | None = None
    ) -> None:
        """`embeddings` [V, d] float32, kept as they are; `pieces` [n] int64, or None for all."""
        self._embeddings, self._pieces = embeddings, pieces
        rows = embeddings.detach() if pieces is None else embeddings.detach()[pieces]
        stored = TwoPartProduct.of(rows)
        self._rounds = stored is None and dtype != torch.float32
        self._product = stored or InferenceLinear(rows, None, dtype)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """[R, d] → [R, V] float32."""
        logits = self._product(hidden)
        if self._rounds:
            logits = self._exact(logits, hidden)
        if self._pieces is None:
            return logits
        every = hidden.new_full((len(hidden), len(self._embeddings)), -torch.inf)
        return every.index_copy_(1, self._pieces, logits)

    def _exact(self, logits: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Recompute the likeliest pieces' logits, in place."""
        _, best = likeliest(logits, min(EXACT_LOGITS, logits.shape[1]))
        rows = self._embeddings[best if self._pieces is None else self._pieces[best]]
        exact: torch.Tensor = rows @ hidden[:, :, None]
        return logits.scatter_(1, best, exact[:, :, 0])


class CachedDecoder(TransformerDecoder):
    """The Transformer decoder with incremental decoding."""

    lexicon: Lexicon | None = None
    """What translations may read in a table, if the checkpoint has one."""
    _all: TiedProjection | None = None
    """Projection to all pieces, once packed, where embeddings are tied."""
    _listed: TiedProjection | None = None
    """Projection to the pieces that translations use, once packed."""

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: the pieces that translations use get a product of their own."""
        embeddings = self.embed_tokens.weight
        if self.config.decoder.shortlist:
            if not self.shortlist[:, EOS].all():
                raise ModelError("shortlist lacks the end of a sentence; allowed: one that has it")
            self._listed = TiedProjection(embeddings, dtype, self.shortlist[1].nonzero()[:, 0])
        if self.config.decoder.tied_embeddings:
            self._all = TiedProjection(embeddings, dtype)
            del self.output_projection
        prepare_linears(self, dtype)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().logits(hidden) if self._all is None else self._all(hidden)

    @cached_property
    def _unlisted(self) -> torch.Tensor:
        """Pieces that the source language does not use, padding among them, [n] int64."""
        unlisted = self.shortlist[0] == 0
        unlisted[PAD] = True
        return unlisted.nonzero()[:, 0]

    @property
    def is_transducer(self) -> bool:
        return self.config.decoder.is_transducer

    @property
    def pivot_prompt(self) -> tuple[int, ...]:
        """Start of the text that the other languages translate; empty where they do not."""
        shape = self.config.decoder
        return (EOS, *shape.own_layers) if shape.pivot_layers else ()

    def is_translated(self, tokens: Sequence[int]) -> bool:
        """Whether hypotheses that begin with these tokens attend to a pivot instead of states."""
        return bool(self.pivot_prompt) and self.stack_of(tokens) is self

    @torch.inference_mode()
    def open_cache(
        self, states: torch.Tensor, tokens: Sequence[int] = (), pivot: Pivot | None = None
    ) -> DecoderCache:
        """Compute keys and values of encoder states, [S, d] float32, once for all layers.

        Args:
            tokens: what every hypothesis begins with; see `stack_of`.
            pivot: the text written from the states, where the language is translated from it.
        """
        width = self.config.encoder.d_model
        if states.ndim != 2 or states.shape[0] < 1 or states.shape[1] != width:  # noqa: PLR2004 - two axes
            raise ModelError(f"states have shape {tuple(states.shape)}; allowed: [S ≥ 1, {width}]")
        if self.is_translated(tokens) != (pivot is not None):
            allowed = "none" if pivot else "one, since the language is a translation"
            raise ModelError(f"pivot is {pivot}; allowed: {allowed}")
        stack, memory = self.stack_of(tokens), states.to(self.embed_tokens.weight.device)
        if pivot is not None:
            read = self._as_tensor(pivot.tokens)
            memory = self.read_pivot(read[None])[0]
            if self.config.decoder.shortlist:
                pivot = replace(pivot, copied=read[self.shortlist[1, read] == 0])
            if self.lexicon is not None:
                words = self.lexicon.words_of(pivot.tokens, tokens)
                pivot = replace(pivot, words=words if words.found else None)
        layers = [layer for layer in decoding_layers(stack) if layer.to_source]
        keys, values = map(
            torch.stack, zip(*(layer.project_memory(memory) for layer in layers), strict=True)
        )
        return DecoderCache(keys, values, stack, pivot=pivot)

    @torch.inference_mode()
    def prefill(
        self,
        tokens: list[int],
        cache: DecoderCache,
        attention_layer: int,
        attention_heads: Sequence[int] = (),
        *,
        first_logits: int = 0,
        first_attention: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read several tokens in one causal pass, after those the cache already holds.

        Args:
            tokens: n ≥ 1 token ids; an empty cache begins with the start token.
            attention_heads: heads to average over, counted from 1; empty takes all.

        Returns:
            Logits [n - first_logits, V] and attention [n - first_attention, S], both float32. Row i
            of n belongs to the prediction of the token after tokens[i]; attention is the softmax,
            averaged over heads.
        """
        self._check(tokens, [attention_layer], [attention_heads])
        if not cache.length and self.stack_of(tokens) is not cache.stack:
            message = f"tokens begin with {tokens[:2]}; the cache was opened for another language"
            raise ModelError(message)
        cache.reserve(len(tokens))
        end = cache.length + len(tokens)
        ids = self._as_tensor(tokens)
        hidden = self.embed(ids, self.positions_up_to(end)[cache.length :])
        seen = torch.ones(len(tokens), end, dtype=torch.bool, device=ids.device).tril(cache.length)
        attention = hidden.new_empty(0)
        # Rows before this are needed only for the keys and values of other layers.
        first = min(first_logits, first_attention)
        for layer, text, source in _places(cache.stack):
            if layer.to_itself:
                query, keys, values = layer.project_self(hidden)
                keys, values = cache.extend(text, keys, values)
                if text == cache.stack.text_layers - 1:
                    hidden, query, seen = hidden[first:], query[:, first:], seen[first:]
                hidden = layer.add_self(hidden, _attended(query, keys, values, seen))
            if layer.to_source:
                queries = layer.project_cross(hidden)
                heads = attention_heads if source == attention_layer - 1 else None
                rows = slice(first_logits - len(tokens), None)
                attended, weights = _attended_source(queries, cache, source, heads, rows)
                attention = attention if weights is None else weights
                hidden = layer.add_cross(hidden, attended)
            hidden = layer.add_feed_forward(hidden)
        cache.advance(len(tokens))
        attention = attention[first_attention - len(tokens) :]
        hidden = cache.stack.layer_norm(hidden[first_logits - len(tokens) :])
        return self._logits_of(hidden, [(cache, slice(None))]), attention

    @torch.inference_mode()
    def step(
        self,
        tokens: list[int],
        caches: Sequence[DecoderCache],
        attention_layers: list[int],
        attention_heads: Sequence[Sequence[int]] = (),
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Read one token in each row of B caches; linear layers run over all R rows at once.

        When it raises, no cache has read its tokens.

        Args:
            tokens: R token ids, one for each row of each cache.
            caches: B caches of one row (a hypothesis) or more (a beam), each row extended by one
                token.
            attention_heads: B times the heads to average over, counted from 1; empty takes all.

        Returns:
            Logits [R, V] float32 and R attention rows [S] float32.
        """
        heads = attention_heads or [()] * len(caches)
        self._check_lengths(tokens, caches, attention_layers, heads)
        self._check(tokens, attention_layers, heads)
        for cache in caches:
            cache.reserve(cache.rows)
        embedded = torch.split(
            self._step_embedding(tokens, caches), [cache.rows for cache in caches]
        )
        stacks: dict[DecoderStack, list[int]] = {}
        for b, cache in enumerate(caches):
            stacks.setdefault(cache.stack, []).append(b)
        logits: dict[int, torch.Tensor] = {}
        attention: dict[int, torch.Tensor] = {}
        for stack, members in stacks.items():
            own = [caches[b] for b in members]
            passed, weights = self._step_through(
                stack,
                _joined([embedded[b] for b in members]),
                own,
                [attention_layers[b] for b in members],
                [heads[b] for b in members],
            )
            made = self._logits_of(passed, _with_rows(own))
            logits.update(
                zip(members, torch.split(made, [cache.rows for cache in own]), strict=True)
            )
            attention.update(zip(members, weights, strict=True))
        for cache in caches:
            cache.advance(cache.rows)
        every = range(len(caches))
        return _joined([logits[b] for b in every]), [row for b in every for row in attention[b]]

    def _logits_of(
        self, hidden: torch.Tensor, caches: Sequence[tuple[DecoderCache, slice]]
    ) -> torch.Tensor:
        """[R, d] after one stack's last LayerNorm → [R, V] float32.

        Pieces outside the shortlist get minus infinity, unless the text that a translation reads
        has them: names and numbers are the same in every language. In the source language, their
        probability goes to padding, which is never chosen, so that the others do not gain by it.
        """
        if not self.config.decoder.shortlist:
            return self.logits(hidden)
        if caches[0][0].pivot is None:
            logits = self.logits(hidden)
            others = logits[:, self._unlisted].logsumexp(-1)
            logits[:, self._unlisted] = -torch.inf
            logits[:, PAD] = others
            return logits
        if self._listed is None:
            logits = self.logits(hidden).masked_fill_(self.shortlist[1] == 0, -torch.inf)
        else:
            logits = self._listed(hidden)
        for cache, rows in caches:
            if cache.pivot is not None and cache.pivot.copied is not None:
                copied = cache.pivot.copied
                logits[rows, copied] = hidden[rows] @ self.embed_tokens.weight[copied].T
        return logits

    def _step_through(
        self,
        stack: DecoderStack,
        hidden: torch.Tensor,
        caches: Sequence[DecoderCache],
        attention_layers: Sequence[int],
        attention_heads: Sequence[Sequence[int]],
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """[R, d] of the new tokens → [R, d] after the last LayerNorm, and attention [rows, S]."""
        attention: dict[int, torch.Tensor] = {}
        for layer, text, source in _places(stack):
            if layer.to_itself:
                attended_rows = self._step_self_attention(layer, text, hidden, caches)
                hidden = layer.add_self(hidden, attended_rows)
            if layer.to_source:
                queries = layer.project_cross(hidden)
                attended = []
                for b, (cache, rows) in enumerate(_with_rows(caches)):
                    heads = attention_heads[b] if source == attention_layers[b] - 1 else None
                    own, weights = _attended_source(queries[:, rows], cache, source, heads)
                    if weights is not None:
                        attention[b] = weights
                    attended.append(own)
                hidden = layer.add_cross(hidden, _joined(attended))
            hidden = layer.add_feed_forward(hidden)
        return stack.layer_norm(hidden), [attention[b] for b in range(len(caches))]

    def _step_embedding(self, tokens: list[int], caches: Sequence[DecoderCache]) -> torch.Tensor:
        """[R, d]: each token at its own place in its hypothesis."""
        places = [cache.position for cache in caches for _ in range(cache.rows)]
        ids = self._as_tensor(tokens)
        rows = self.positions_up_to(max(places) + 1)
        return self.embed(ids, rows[self._as_tensor(places)])

    @staticmethod
    def _step_self_attention(
        layer: TransformerLayer, index: int, hidden: torch.Tensor, caches: Sequence[DecoderCache]
    ) -> torch.Tensor:
        """[R, d] → [R, d]: each row's new token over its own keys and values."""
        queries, keys, values = layer.project_self(hidden)
        attended = []
        for cache, rows in _with_rows(caches):
            past = cache.extend(index, keys[:, rows], values[:, rows])
            attended.append(_attended(queries[:, rows], *past, cache.visible))
        return _joined(attended)

    def _as_tensor(self, tokens: list[int]) -> torch.Tensor:
        return torch.tensor(tokens, device=self.embed_tokens.weight.device)

    def _check_lengths(
        self,
        tokens: list[int],
        caches: Sequence[DecoderCache],
        attention_layers: list[int],
        attention_heads: Sequence[Sequence[int]],
    ) -> None:
        rows = sum(cache.rows for cache in caches)
        counts = (len(caches), len(attention_layers), len(attention_heads))
        if len(tokens) != rows or len(set(counts)) > 1:
            raise ModelError(
                f"caches, attention_layers, attention_heads have {counts} items and there are "
                f"{len(tokens)} tokens; allowed: equal numbers, and {rows} tokens, one a row"
            )

    def _check(
        self,
        tokens: list[int],
        attention_layers: list[int],
        attention_heads: Sequence[Sequence[int]],
    ) -> None:
        if not tokens:
            raise ModelError("tokens is []; allowed: at least one token")
        wrong = [token for token in tokens if not 0 <= token < self.config.target_pieces]
        if wrong:
            raise ModelError(f"token is {wrong[0]}; allowed: 0 to {self.config.target_pieces - 1}")
        layers, heads = self.config.decoder.layers, self.config.decoder.heads
        if not all(1 <= layer <= layers for layer in attention_layers):
            raise ModelError(f"attention_layer is {attention_layers}; allowed: 1 to {layers}")
        if not all(1 <= head <= heads for chosen in attention_heads for head in chosen):
            raise ModelError(f"attention_heads is {attention_heads}; allowed: 1 to {heads}")


def _with_rows(caches: Sequence[DecoderCache]) -> list[tuple[DecoderCache, slice]]:
    ends = list(accumulate(cache.rows for cache in caches))
    return [(cache, slice(end - cache.rows, end)) for cache, end in zip(caches, ends, strict=True)]


def _joined(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(list(rows))


def _attended(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor | None = None,
) -> torch.Tensor:
    """[heads, n, d_head] queries over [heads, S, d_head] → [n, d]; `seen` [n, S] bool, or all."""
    attended = functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], attn_mask=seen
    )
    return attended[0].transpose(0, 1).flatten(1)


def _attended_source(
    queries: torch.Tensor,
    cache: DecoderCache,
    source: int,
    heads: Sequence[int] | None,
    aligned: slice = slice(None),
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the cross-attention of a layer, and its weights over the states, [R, S] float32.

    Args:
        heads: to average the weights over; None for no weights.
        aligned: rows whose weights align a translation with its text, if this layer's do.
    """
    aligns = cache.aligns(source)
    if not aligns and heads is None:
        return _attended(queries, cache.cross_keys[source], cache.cross_values[source]), None
    attended, weights = _weighted(queries, cache, source)
    if aligns:
        cache.alignment = _mean_of(weights[:, aligned], ())
    return attended, None if heads is None else cache.over_states(_mean_of(weights, heads))


def _weighted(
    query: torch.Tensor, cache: DecoderCache, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """[heads, n, d_head] queries over the states → [n, d] and weights [heads, n, S] float32."""
    scores = (query * query.shape[-1] ** -0.5) @ cache.cross_keys[index].transpose(-1, -2)
    weights = scores.float().softmax(-1)
    return (weights @ cache.cross_values[index]).transpose(0, 1).flatten(1), weights


def _mean_of(weights: torch.Tensor, heads: Sequence[int]) -> torch.Tensor:
    """[heads, n, S] → [n, S], the mean of the heads chosen, counted from 1; empty takes all."""
    chosen = weights[[head - 1 for head in heads]] if heads else weights
    return chosen.mean(0)
