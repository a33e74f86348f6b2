"""Rows of hypotheses that go through the decoder together, with the keys and values of each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from earvoice.models.decoding import CachedDecoder, DecodingLayer


class SearchBatch:
    """B rows of different lengths over states of different numbers.

    Args:
        decoder: the network, in evaluation mode, on the CPU.
        memories: of each row, keys and values of its states, each [layers, heads, S, d_head].
        capacity_tokens: tokens that a row may come to.
    """

    def __init__(
        self,
        decoder: CachedDecoder,
        memories: Sequence[tuple[torch.Tensor, torch.Tensor]],
        capacity_tokens: int,
    ) -> None:
        self._decoder = decoder
        self._layers = decoder.decoding_layers()
        self._cross_keys = _stacked([keys for keys, _ in memories])
        self._cross_values = _stacked([values for _, values in memories])
        layers, rows, heads, longest, width = self._cross_keys.shape
        counts = torch.tensor([keys.shape[2] for keys, _ in memories])
        # Added to scores: what is no state of a row gets no weight.
        self._outside = torch.zeros(rows, 1, 1, longest)
        self._outside.masked_fill_(torch.arange(longest) >= counts[:, None, None, None], -torch.inf)
        shape = (layers, rows, heads, capacity_tokens, width)
        self._own_keys = torch.zeros(shape)
        self._own_values = torch.zeros(shape)
        self._lengths = torch.zeros(rows, dtype=torch.int64)
        # Of the tokens that are being read: row, column among the new ones, place in the row.
        self._rows = self._columns = self._places = self._lengths[:0]

    def read(self, inputs: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Read tokens in each row, behind those that it keeps.

        Args:
            inputs: of each row, 1 token or more; N in all.

        Returns:
            Hidden [N, d] before the last norm, row after row, and cross-attention
            [layers, B, heads, n, S] for rows as long as the longest; what is behind a row's own
            tokens and states means nothing.
        """
        counts = torch.tensor([len(row) for row in inputs])
        columns = torch.arange(int(counts.max()))
        places = self._lengths[:, None] + columns
        end = int(places[:, -1].max()) + 1
        self._reserve(end)
        # Linear layers see real tokens only; attention works on rows of one length.
        rows, own_columns = (columns < counts[:, None]).nonzero(as_tuple=True)
        self._rows, self._columns = rows, own_columns
        self._places = places[rows, own_columns]
        tokens = torch.tensor([token for row in inputs for token in row])
        decoder = self._decoder
        hidden = decoder.embed(tokens, decoder.positions.up_to(end, tokens.device)[self._places])
        seen = (torch.arange(end) <= places[:, :, None])[:, None]
        weights: list[torch.Tensor] = []
        for index, layer in enumerate(self._layers):
            hidden = self._after_self_attention(layer, index, hidden, seen)
            hidden, attention = self._after_cross_attention(layer, index, hidden, len(columns))
            weights.append(attention)
            hidden = layer.add_feed_forward(hidden)
        return hidden, torch.stack(weights)

    def keep(self, counts: Sequence[int]) -> None:
        """Keep so many more tokens of each row; what was read behind them is forgotten."""
        self._lengths = self._lengths + torch.tensor(counts)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone."""
        index = torch.tensor(rows)
        self._cross_keys = self._cross_keys[:, index]
        self._cross_values = self._cross_values[:, index]
        self._own_keys = self._own_keys[:, index]
        self._own_values = self._own_values[:, index]
        self._outside = self._outside[index]
        self._lengths = self._lengths[index]

    def _after_self_attention(
        self, layer: DecodingLayer, index: int, hidden: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        """[N, d] → [N, d]; `seen` [B, 1, n, tokens] bool."""
        query, new_keys, new_values = layer.project_self(hidden)
        keys, values = self._own_keys[index], self._own_values[index]
        keys[self._rows, :, self._places] = new_keys.transpose(0, 1)
        values[self._rows, :, self._places] = new_values.transpose(0, 1)
        count, end = seen.shape[2:]
        attended = functional.scaled_dot_product_attention(
            self._padded(query, count), keys[:, :, :end], values[:, :, :end], attn_mask=seen
        )
        return layer.add_self(hidden, attended[self._rows, :, self._columns].flatten(1))

    def _after_cross_attention(
        self, layer: DecodingLayer, index: int, hidden: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[N, d] → [N, d], and weights [B, heads, n, S]."""
        queries = self._padded(layer.project_cross(hidden), count)
        scores = (queries * queries.shape[-1] ** -0.5) @ self._cross_keys[index].transpose(-1, -2)
        attention = (scores.float() + self._outside).softmax(-1)
        attended = attention @ self._cross_values[index]
        return layer.add_cross(hidden, attended[self._rows, :, self._columns].flatten(1)), attention

    def _padded(self, flat: torch.Tensor, count: int) -> torch.Tensor:
        """[heads, N, d_head] → [B, heads, n, d_head]."""
        heads, _, width = flat.shape
        padded = flat.new_zeros(len(self._lengths), count, heads, width)
        padded[self._rows, self._columns] = flat.transpose(0, 1)
        return padded.transpose(1, 2)

    def _reserve(self, end: int) -> None:
        missing = end - self._own_keys.shape[3]
        if missing > 0:
            padding = (0, 0, 0, missing + end // 2)
            self._own_keys = functional.pad(self._own_keys, padding)
            self._own_values = functional.pad(self._own_values, padding)


def _stacked(memories: Sequence[torch.Tensor]) -> torch.Tensor:
    """B tensors [layers, heads, S, d_head] → [layers, B, heads, longest S, d_head]."""
    longest = max(memory.shape[2] for memory in memories)
    padded = [functional.pad(memory, (0, 0, 0, longest - memory.shape[2])) for memory in memories]
    return torch.stack(padded, dim=1)
