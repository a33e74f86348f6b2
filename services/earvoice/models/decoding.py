"""Decoding one token after another, with the keys and values of earlier tokens kept."""

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
        self, tokens: list[int], cache: DecoderCache, attention_layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read several tokens in one causal pass, after those the cache already holds.

        Args:
            tokens: n ≥ 1 token ids; an empty cache begins with the start token.
            cache: extended by n tokens.
            attention_layer: which layer's cross-attention to give, counted from 1.

        Returns:
            Logits [n, V] and attention [n, S], both float32. Row i belongs to the prediction of
            the token after tokens[i]; attention is the softmax, averaged over heads.

        Raises:
            ModelInputError: no tokens, a token out of range, or no such layer.
        """
        self._check(tokens, [attention_layer])
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
                attention = weights
            hidden = hidden + layer.encoder_attn.out_proj(attended)
            hidden = hidden + layer.feed_forward(hidden)
        cache.advance(len(tokens))
        return self.logits(hidden), attention

    @torch.inference_mode()
    def step(
        self, tokens: list[int], caches: list[DecoderCache], attention_layers: list[int]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Read one token in each of B sessions; linear layers run over all of them at once.

        Args:
            tokens: B token ids, one a session.
            caches: B caches, each extended by one token.
            attention_layers: B layers whose cross-attention to give, counted from 1.

        Returns:
            Logits [B, V] float32 and B attention rows [S] float32.

        Raises:
            ModelInputError: the lists differ in length, or a token or layer is out of range.
        """
        if not len(tokens) == len(caches) == len(attention_layers):
            message = (
                f"tokens, caches, attention_layers have {len(tokens)}, {len(caches)} and "
                f"{len(attention_layers)} items; allowed: equal numbers"
            )
            raise ModelInputError(message)
        self._check(tokens, attention_layers)
        for cache in caches:
            cache.reserve(1)
        lengths = [cache.length for cache in caches]
        ids, places = self._as_tensor(tokens), self._as_tensor(lengths)
        rows = self.positions.up_to(max(lengths) + 1, ids.device)[places]
        hidden = self.embed(ids, rows)
        attention: dict[int, torch.Tensor] = {}
        for index, layer in enumerate(self._decoder_layers()):
            hidden = hidden + self._step_self_attention(layer, index, hidden, caches)
            cross = layer.encoder_attn
            queries = cross.q_proj(layer.encoder_attn_layer_norm(hidden))
            attended_rows = []
            for b, cache in enumerate(caches):
                wanted = attention_layers[b] == index + 1
                attended, weights = self._cross_attention(
                    cross, queries[b : b + 1], cache, index, weighted=wanted
                )
                attended_rows.append(attended)
                if weights is not None:
                    attention[b] = weights[0]
            hidden = hidden + cross.out_proj(torch.cat(attended_rows))
            hidden = hidden + layer.feed_forward(hidden)
        for cache in caches:
            cache.advance(1)
        return self.logits(hidden), [attention[b] for b in range(len(caches))]

    @staticmethod
    def _step_self_attention(
        layer: DecoderLayer, index: int, hidden: torch.Tensor, caches: list[DecoderCache]
    ) -> torch.Tensor:
        """[B, d] → [B, d]: each session's new token over its own keys and values."""
        own = layer.self_attn
        normed = layer.self_attn_layer_norm(hidden)
        queries, keys, values = own.q_proj(normed), own.k_proj(normed), own.v_proj(normed)
        rows = []
        for b, cache in enumerate(caches):
            row = slice(b, b + 1)
            past = cache.extend(index, own.by_head(keys[row]), own.by_head(values[row]))
            attended = functional.scaled_dot_product_attention(
                own.by_head(queries[row])[None], past[0][None], past[1][None]
            )
            rows.append(attended[0].transpose(0, 1).flatten(1))
        output: torch.Tensor = own.out_proj(torch.cat(rows))
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
        """[n, d] queries → [n, d] values, and [n, S] mean weights where they are wanted."""
        query = attention.by_head(queries)
        keys, values = cache.cross_keys[index], cache.cross_values[index]
        if not weighted:
            attended = functional.scaled_dot_product_attention(
                query[None], keys[None], values[None]
            )[0]
            return attended.transpose(0, 1).flatten(1), None
        scores = (query * query.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        weights = scores.float().softmax(-1)
        return (weights @ values).transpose(0, 1).flatten(1), weights.mean(0)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]

    def _as_tensor(self, tokens: list[int]) -> torch.Tensor:
        return torch.tensor(tokens, device=self.embed_tokens.weight.device)

    def _check(self, tokens: list[int], attention_layers: list[int]) -> None:
        if not tokens:
            message = "tokens is []; allowed: at least one token"
            raise ModelInputError(message)
        wrong = [token for token in tokens if not 0 <= token < self.config.target_pieces]
        if wrong:
            message = f"token is {wrong[0]}; allowed: 0 to {self.config.target_pieces - 1}"
            raise ModelInputError(message)
        layers = self.config.decoder.layers
        if not all(1 <= layer <= layers for layer in attention_layers):
            message = f"attention_layer is {attention_layers}; allowed: 1 to {layers}"
            raise ModelInputError(message)
