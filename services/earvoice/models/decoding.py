"""Decoding one token after another, with the keys and values of earlier tokens kept."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch.nn import functional

from earvoice.models.attention import MultiHeadAttention
from earvoice.models.decoder_cache import DecoderCache
from earvoice.models.errors import ModelInputError
from earvoice.models.transformer import DecoderLayer, TransformerDecoder

__all__ = ["CachedDecoder", "DecoderCache"]


class CachedDecoder(TransformerDecoder):
    """The Transformer decoder with incremental decoding."""

    @torch.inference_mode()
    def open_cache(self, states: torch.Tensor) -> DecoderCache:
        """Compute the keys and values of the encoder states, [S, d] float32, once for all layers.

        Raises:
            ModelInputError: the states have another shape.
        """
        width = self.config.encoder.d_model
        if states.ndim != 2 or states.shape[0] < 1 or states.shape[1] != width:  # noqa: PLR2004 - two axes
            message = f"states have shape {tuple(states.shape)}; allowed: [S ≥ 1, {width}]"
            raise ModelInputError(message)
        states = states.to(self.embed_tokens.weight.device)
        attentions = [layer.encoder_attn for layer in self._decoder_layers()]
        return DecoderCache(
            torch.stack([attention.by_head(attention.k_proj(states)) for attention in attentions]),
            torch.stack([attention.by_head(attention.v_proj(states)) for attention in attentions]),
        )

    @torch.inference_mode()
    def prefill(
        self,
        tokens: list[int],
        cache: DecoderCache,
        attention_layer: int,
        attention_heads: Sequence[int] = (),
        *,
        first_logits: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read several tokens in one causal pass, after those the cache already holds.

        Args:
            tokens: n ≥ 1 token ids; an empty cache begins with the start token.
            cache: extended by n tokens.
            attention_layer: which layer's cross-attention to give, counted from 1.
            attention_heads: heads to average over, counted from 1; empty takes all.
            first_logits: first row whose logits are computed, 0 to n - 1.

        Returns:
            Logits [n - first_logits, V] and attention [n, S], both float32. Row i of n belongs to
            the prediction of the token after tokens[i]; attention is the softmax, averaged over
            heads.

        Raises:
            ModelInputError: no tokens, a token out of range, or no such layer or head.
        """
        self._check(tokens, [attention_layer], [attention_heads])
        cache.reserve(len(tokens))
        end = cache.length + len(tokens)
        ids = self._as_tensor(tokens)
        hidden = self.embed(ids, self.positions.up_to(end, ids.device)[cache.length :])
        attention = hidden.new_empty(0)
        for index, layer in enumerate(self._decoder_layers()):
            hidden = hidden + self._self_attention(layer, index, hidden, cache)
            attended, weights = self._cross_attention(
                layer.encoder_attn,
                layer.encoder_attn.q_proj(layer.encoder_attn_layer_norm(hidden)),
                cache,
                index,
                weighted=index == attention_layer - 1,
            )
            if weights is not None:
                attention = _mean_of(weights, attention_heads)
            hidden = hidden + layer.encoder_attn.out_proj(attended)
            hidden = hidden + layer.feed_forward(hidden)
        cache.advance(len(tokens))
        return self.logits(hidden[first_logits:]), attention

    @torch.inference_mode()
    def step(
        self,
        tokens: list[int],
        caches: Sequence[DecoderCache],
        attention_layers: list[int],
        attention_heads: Sequence[Sequence[int]] = (),
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Read one token in each row of B caches; linear layers run over all R rows at once.

        Args:
            tokens: R token ids, one for each row of each cache.
            caches: B caches of one row (a hypothesis) or more (a beam), each row extended by one
                token.
            attention_layers: B layers whose cross-attention to give, counted from 1.
            attention_heads: B times the heads to average over, counted from 1; empty takes all.

        Returns:
            Logits [R, V] float32 and R attention rows [S] float32.

        Raises:
            ModelInputError: the lists do not fit, or a token, layer or head is out of range.
        """
        heads = attention_heads or [()] * len(caches)
        self._check_lengths(tokens, caches, attention_layers, heads)
        self._check(tokens, attention_layers, heads)
        for cache in caches:
            cache.reserve(cache.rows)
        hidden = self._step_embedding(tokens, caches)
        attention: dict[int, torch.Tensor] = {}
        for index, layer in enumerate(self._decoder_layers()):
            hidden = hidden + self._step_self_attention(layer, index, hidden, caches)
            cross = layer.encoder_attn
            queries = cross.q_proj(layer.encoder_attn_layer_norm(hidden))
            attended_rows = []
            for b, (cache, rows) in enumerate(_with_rows(caches)):
                wanted = attention_layers[b] == index + 1
                attended, weights = self._cross_attention(
                    cross, queries[rows], cache, index, weighted=wanted
                )
                attended_rows.append(attended)
                if weights is not None:
                    attention[b] = _mean_of(weights, heads[b])
            hidden = hidden + cross.out_proj(torch.cat(attended_rows))
            hidden = hidden + layer.feed_forward(hidden)
        for cache in caches:
            cache.advance(cache.rows)
        return self.logits(hidden), [row for b in range(len(caches)) for row in attention[b]]

    def _step_embedding(self, tokens: list[int], caches: Sequence[DecoderCache]) -> torch.Tensor:
        """[R, d]: each token at its own place in its hypothesis."""
        places = [cache.position for cache in caches for _ in range(cache.rows)]
        ids = self._as_tensor(tokens)
        rows = self.positions.up_to(max(places) + 1, ids.device)
        return self.embed(ids, rows[self._as_tensor(places)])

    @staticmethod
    def _step_self_attention(
        layer: DecoderLayer, index: int, hidden: torch.Tensor, caches: Sequence[DecoderCache]
    ) -> torch.Tensor:
        """[R, d] → [R, d]: each row's new token over its own keys and values."""
        own = layer.self_attn
        normed = layer.self_attn_layer_norm(hidden)
        queries, keys, values = own.q_proj(normed), own.k_proj(normed), own.v_proj(normed)
        attended_rows = []
        for cache, rows in _with_rows(caches):
            past = cache.extend(index, own.by_head(keys[rows]), own.by_head(values[rows]))
            attended = functional.scaled_dot_product_attention(
                own.by_head(queries[rows])[None],
                past[0][None],
                past[1][None],
                attn_mask=cache.visible,
            )
            attended_rows.append(attended[0].transpose(0, 1).flatten(1))
        output: torch.Tensor = own.out_proj(torch.cat(attended_rows))
        return output

    def _self_attention(
        self, layer: DecoderLayer, index: int, hidden: torch.Tensor, cache: DecoderCache
    ) -> torch.Tensor:
        """[n, d] → [n, d]: causal attention of n new tokens over themselves and the cache."""
        own = layer.self_attn
        normed = layer.self_attn_layer_norm(hidden)
        keys, values = cache.extend(
            index, own.by_head(own.k_proj(normed)), own.by_head(own.v_proj(normed))
        )
        count, total = hidden.shape[0], keys.shape[1]
        seen = torch.ones(count, total, dtype=torch.bool, device=hidden.device).tril(total - count)
        attended = functional.scaled_dot_product_attention(
            own.by_head(own.q_proj(normed))[None], keys[None], values[None], attn_mask=seen
        )
        output: torch.Tensor = own.out_proj(attended[0].transpose(0, 1).flatten(1))
        return output

    @staticmethod
    def _cross_attention(
        attention: MultiHeadAttention,
        queries: torch.Tensor,
        cache: DecoderCache,
        index: int,
        *,
        weighted: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[n, d] queries → [n, d] values, and [heads, n, S] weights where they are wanted."""
        query = attention.by_head(queries)
        keys, values = cache.cross_keys[index], cache.cross_values[index]
        if not weighted:
            attended = functional.scaled_dot_product_attention(
                query[None], keys[None], values[None]
            )[0]
            return attended.transpose(0, 1).flatten(1), None
        scores = (query * query.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        weights = scores.float().softmax(-1)
        return (weights @ values).transpose(0, 1).flatten(1), weights

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]

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
            message = (
                f"caches, attention_layers, attention_heads have {counts} items and there are "
                f"{len(tokens)} tokens; allowed: equal numbers, and {rows} tokens, one a row"
            )
            raise ModelInputError(message)

    def _check(
        self,
        tokens: list[int],
        attention_layers: list[int],
        attention_heads: Sequence[Sequence[int]],
    ) -> None:
        if not tokens:
            message = "tokens is []; allowed: at least one token"
            raise ModelInputError(message)
        wrong = [token for token in tokens if not 0 <= token < self.config.target_pieces]
        if wrong:
            message = f"token is {wrong[0]}; allowed: 0 to {self.config.target_pieces - 1}"
            raise ModelInputError(message)
        layers, heads = self.config.decoder.layers, self.config.decoder.heads
        if not all(1 <= layer <= layers for layer in attention_layers):
            message = f"attention_layer is {attention_layers}; allowed: 1 to {layers}"
            raise ModelInputError(message)
        if not all(1 <= head <= heads for chosen in attention_heads for head in chosen):
            message = f"attention_heads is {attention_heads}; allowed: 1 to {heads}"
            raise ModelInputError(message)


def _with_rows(caches: Sequence[DecoderCache]) -> list[tuple[DecoderCache, slice]]:
    """Each cache and the rows of a batch that are its own."""
    ends = list(accumulate(cache.rows for cache in caches))
    return [(cache, slice(end - cache.rows, end)) for cache, end in zip(caches, ends, strict=True)]


def _mean_of(weights: torch.Tensor, heads: Sequence[int]) -> torch.Tensor:
    """[heads, n, S] → [n, S], the mean of the heads chosen, counted from 1; empty takes all."""
    chosen = weights[[head - 1 for head in heads]] if heads else weights
    return chosen.mean(0)
