"""Transformers (Vaswani 2017, pre-norm): attention, positions, an encoder's layer, the decoder."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import Activation, ModelConfig
from earvoice.models.errors import ModelError
from earvoice.models.inference import InferenceLinear, prepare_linears
from earvoice.models.vocabulary import PAD

BYTE_VALUES = 256


def valid_frames(lengths: torch.Tensor, frames: int) -> torch.Tensor:
    """[B, frames] bool, true where a frame (state, token) of utterance b is not padding."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


class Dropout(nn.Module):
    """Zero a share of the elements while training; the share is rounded to a 256th.

    `torch.nn.Dropout` draws a full random number for each element, a quarter of a training step on
    a CPU; eight bytes of one 64-bit draw do as well.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.threshold = round(probability * BYTE_VALUES)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Any shape → the same shape; kept elements are scaled to preserve the mean."""
        if not self.training or self.threshold == 0:
            return values
        draws = torch.empty((values.numel() + 7) // 8, dtype=torch.int64, device=values.device)
        random_bytes = draws.random_(-(2**63), None).view(torch.uint8)[: values.numel()]
        kept = (random_bytes >= self.threshold).view(values.shape)
        return values * kept * (BYTE_VALUES / (BYTE_VALUES - self.threshold))


ACTIVATIONS: Mapping[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
}


class MultiHeadAttention(nn.Module):
    """Multi-head attention and its projections, to the input itself or to a source."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        *,
        key_bias: bool = True,
        to_source: bool = False,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.q_proj: nn.Linear | InferenceLinear = nn.Linear(width, width)
        # A bias of the keys changes no attention weight; Whisper has none.
        self.k_proj = nn.Linear(width, width, bias=key_bias)
        self.v_proj = nn.Linear(width, width)
        self.out_proj: nn.Linear | InferenceLinear = nn.Linear(width, width)
        self._to_source = to_source
        self._joined: InferenceLinear | None = None

    def by_head(self, projected: torch.Tensor) -> torch.Tensor:
        """[…, L, d] → […, heads, L, d_head]."""
        return projected.view(*projected.shape[:-1], self.heads, -1).transpose(-2, -3)

    def project(self, inputs: torch.Tensor, *, rounded: bool = False) -> tuple[torch.Tensor, ...]:
        """[…, L, d] → query, key and value […, heads, L, d_head]; of a source, no query.

        They are float32; with `rounded`, of the dtype of the products if it is native here.
        """
        if self._joined is None:
            parts = (self.k_proj, self.v_proj)
            read = parts if self._to_source else (self.q_proj, *parts)
            return tuple(self.by_head(part(inputs)) for part in read)
        if rounded:
            projected = self._joined.product(inputs).to(self._joined.native_dtype)
        else:
            projected = self._joined(inputs)
        count = 2 if self._to_source else 3
        projected = projected.view(*projected.shape[:-1], count, self.heads, -1)
        return projected.transpose(-4, -3).transpose(-3, -2).unbind(-4)

    def attend(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        allowed: torch.Tensor | None = None,
        *,
        causal: bool = False,
    ) -> torch.Tensor:
        """[B, heads, L, d_head] over [B, heads, S, d_head] → [B, L, d], queries by √d_head⁻¹.

        `allowed` [B, 1, 1 or L, S] bool is true where a query may attend; None allows all.
        """
        attended = functional.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=allowed,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
        )
        return attended.transpose(1, 2).flatten(2)

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: one product for projections of one input; a missing bias is zeros."""
        parts = [self.k_proj, self.v_proj]
        if isinstance(self.q_proj, nn.Linear) and not self._to_source:
            parts = [self.q_proj, *parts]
            del self.q_proj
        weights: list[torch.Tensor] = [part.weight for part in parts]
        biases: list[torch.Tensor] = [
            part.weight.new_zeros(part.out_features) if part.bias is None else part.bias
            for part in parts
        ]
        del self.k_proj, self.v_proj
        prepare_linears(self, dtype)
        self._joined = InferenceLinear(torch.cat(weights), torch.cat(biases), dtype)


FIRST_POSITIONS = 256
"""Position rows that are computed at first; their number doubles when exceeded."""


def token_positions(count: int, width: int, first: int = 2) -> torch.Tensor:
    """[count, width] float32 sinusoids of tokens 0, 1 …: first half sine, second half cosine.

    Token t has position t + first and column i the rate 10000^(-i / (width/2 - 1)).
    """
    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000.0) / (half - 1)))
    angles = torch.arange(first, first + count, dtype=torch.float32)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class TokenPositions:
    """Position rows that are computed once and cut to length."""

    def __init__(self, width: int, first: int = 2) -> None:
        """`first` is the position of the first row."""
        self._width = width
        self._first = first
        self._rows = torch.empty(0, width)

    def up_to(self, count: int, device: torch.device) -> torch.Tensor:
        """[count, d] float32: the rows of tokens 0 … count - 1."""
        if count > self._rows.shape[0] or self._rows.device != device:
            enough = max(FIRST_POSITIONS, 2 ** math.ceil(math.log2(count)))
            self._rows = token_positions(enough, self._width, self._first).to(device)
        return self._rows[:count]


class EarlierRows:
    """A layer's keys and values for its first rows, which stay fixed while others follow them."""

    def __init__(self) -> None:
        self._kept: tuple[torch.Tensor, ...] = ()
        self._all: tuple[torch.Tensor, ...] = ()

    def followed_by(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[B, heads, n, d_head] of the rows after those kept → keys and values of all rows."""
        self._all = (keys, values)
        if self._kept:
            pairs = zip(self._kept, self._all, strict=True)
            self._all = tuple([torch.cat(pair, dim=2) for pair in pairs])
        return self._all

    def keep(self, rows: int) -> None:
        """Keep this many of the rows that `followed_by` returned last."""
        self._kept = tuple([part[:, :, :rows] for part in self._all])
        self.drop()

    def drop(self) -> None:
        """Keep no more of the rows that `followed_by` returned last."""
        self._all = ()


class TransformerLayer(nn.Module):
    """Self-attention, cross-attention, feed-forward; LayerNorm before each.

    An encoder's layers have no cross-attention. Nor have those of a transducer's predictor; its
    joiner has no self-attention.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        ffn_width: int,
        dropout: float = 0.0,
        *,
        activation: Activation = "relu",
        key_bias: bool = True,
        causal: bool = False,
        to_itself: bool = True,
        to_source: bool = False,
    ) -> None:
        """`to_itself` and `to_source` say what it attends to; `causal` hides later rows."""
        super().__init__()
        self.activation, self.causal = activation, causal
        self.to_itself, self.to_source = to_itself, to_source
        if to_itself:
            self.self_attn = MultiHeadAttention(width, heads, dropout, key_bias=key_bias)
            self.self_attn_layer_norm = nn.LayerNorm(width)
        if to_source:
            self.encoder_attn = MultiHeadAttention(
                width, heads, dropout, key_bias=key_bias, to_source=True
            )
            self.encoder_attn_layer_norm = nn.LayerNorm(width)
        self.fc1: nn.Linear | InferenceLinear = nn.Linear(width, ffn_width)
        self.fc2: nn.Linear | InferenceLinear = nn.Linear(ffn_width, width)
        self.final_layer_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: torch.Tensor,
        valid: torch.Tensor | None = None,
        *,
        frames: int | None = None,
        memory: torch.Tensor | None = None,
        seen: torch.Tensor | None = None,
        earlier: EarlierRows | None = None,
    ) -> torch.Tensor:
        """Compute the layer over whole utterances or texts, or over what follows earlier rows.

        Args:
            hidden: [B, R, d] residual stream.
            valid: [B, R] bool, or None when nothing is padded.
            frames: number of rows that mean something, the first ones; None for all.
            memory: [B, S, d], the source.
            seen: [B, 1, 1 or R, S] bool, what each row sees of it.
            earlier: rows before these, to which they attend too.

        Returns:
            [B, R, d] float32.
        """
        if self.to_itself:
            # Nothing is lost, and attention to many rows takes half the time in bf16.
            query, keys, values = self.project_self(hidden, rounded=True)
            # Padding is on the right, so a causal layer never sees it.
            allowed = None if valid is None or self.causal else valid[:, None, None, :]
            keys, values = keys[:, :, :frames], values[:, :, :frames]
            if earlier is not None:
                keys, values = earlier.followed_by(keys, values)
            attended = self.self_attn.attend(query, keys, values, allowed, causal=self.causal)
            hidden = self.add_self(hidden, attended)
        if self.to_source and memory is not None:
            queries = self.project_cross(hidden)
            attended = self.encoder_attn.attend(queries, *self.project_memory(memory), seen)
            hidden = self.add_cross(hidden, attended)
        return self.add_feed_forward(hidden)

    def project_memory(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[…, S, d] encoder states → key and value […, heads, S, d_head] float32."""
        keys, values = self.encoder_attn.project(states)
        return keys, values

    def project_self(
        self, hidden: torch.Tensor, *, rounded: bool = False
    ) -> tuple[torch.Tensor, ...]:
        """[…, n, d] → query, key and value […, heads, n, d_head] of self-attention."""
        return self.self_attn.project(self.self_attn_layer_norm(hidden), rounded=rounded)

    def add_self(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[…, n, d] and what self-attention gave, […, n, d] → […, n, d]."""
        return self._added(hidden, self.self_attn.out_proj, attended)

    def project_cross(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, n, d] → query […, heads, n, d_head] of cross-attention."""
        cross = self.encoder_attn
        return cross.by_head(cross.q_proj(self.encoder_attn_layer_norm(hidden)))

    def add_cross(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        return self._added(hidden, self.encoder_attn.out_proj, attended)

    def add_feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.final_layer_norm(hidden)
        if isinstance(self.fc1, InferenceLinear):
            inner = self.fc1.product(normed)
        else:
            inner = self.dropout(ACTIVATIONS[self.activation](self.fc1(normed)))
        return self._added(hidden, self.fc2, inner)

    def _added(
        self, hidden: torch.Tensor, linear: nn.Linear | InferenceLinear, inputs: torch.Tensor
    ) -> torch.Tensor:
        if isinstance(linear, InferenceLinear):
            return linear.added_to(hidden, inputs)
        total: torch.Tensor = hidden + self.dropout(linear(inputs))
        return total

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: the activation is part of the product before it."""
        if isinstance(self.fc1, nn.Linear):
            self.fc1 = InferenceLinear.from_linear(self.fc1, dtype, self.activation)
        prepare_linears(self, dtype)


class LayerStack(nn.Module):
    """Layers of the decoder's shape, and the LayerNorm after them."""

    def __init__(
        self,
        config: ModelConfig,
        kinds: Sequence[tuple[bool, bool]],
        dropout: float = 0.0,
        *,
        causal: bool,
    ) -> None:
        """`kinds` says for each layer whether it attends to itself, and to the source."""
        super().__init__()
        width, decoder = config.encoder.d_model, config.decoder
        self.layers = nn.ModuleList(
            TransformerLayer(
                width,
                decoder.heads,
                decoder.ffn_width,
                dropout,
                activation=decoder.activation,
                key_bias=decoder.key_bias,
                causal=causal,
                to_itself=to_itself,
                to_source=to_source,
            )
            for to_itself, to_source in kinds
        )
        self.layer_norm = nn.LayerNorm(width)

    def through(self, hidden: torch.Tensor, **read: torch.Tensor | None) -> torch.Tensor:
        """[B, L, d] → [B, L, d]; for the other arguments see `TransformerLayer.forward`."""
        for layer in self.layers:
            hidden = layer(hidden, **read)
        normed: torch.Tensor = self.layer_norm(hidden)
        return normed


class DecoderStack(LayerStack):
    """The layers that a hypothesis goes through."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        decoder = config.decoder
        kinds = [(True, False)] * decoder.predictor_layers
        kinds += [(not decoder.is_transducer, True)] * decoder.layers
        super().__init__(config, kinds, dropout, causal=True)
        self.text_layers = decoder.predictor_layers or decoder.layers
        """Number of layers that attend to the text."""


class TransformerDecoder(DecoderStack):
    """Embedding, layers, final LayerNorm, output projection without bias.

    Languages that have layers of their own share the embeddings. With a `pivot` the source language
    reads the encoder's states, and the others read its text; see `read_pivot`.
    """

    shortlist: torch.Tensor
    """[2, V] float32, 0 for pieces that the source language and that translations do not use; see
    `DecoderConfig.shortlist`."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__(config, dropout)
        width = config.encoder.d_model
        self.config = config
        self.embed_tokens = nn.Embedding(config.target_pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embed_tokens.weight, std=width**-0.5)
        with torch.no_grad():
            self.embed_tokens.weight[PAD].zero_()
        self.own = nn.ModuleDict(
            {str(token): DecoderStack(config, dropout) for token in config.decoder.own_layers}
        )
        if config.decoder.pivot_layers:
            kinds = [(True, False)] * config.decoder.pivot_layers
            self.pivot = LayerStack(config, kinds, dropout, causal=False)
        if config.decoder.shortlist:
            self.register_buffer("shortlist", torch.ones(2, config.target_pieces))
        self.output_projection = nn.Linear(width, config.target_pieces, bias=False)
        nn.init.normal_(self.output_projection.weight, std=width**-0.5)
        self.tie_embeddings()
        self.dropout = Dropout(dropout)
        self._sinusoids = TokenPositions(width)
        self._embedding_scale = math.sqrt(width)
        if config.decoder.positions == "learned":
            self.embed_positions = nn.Embedding(config.decoder.max_tokens, width)
            self._embedding_scale = 1.0

    def tie_embeddings(self) -> None:
        if self.config.decoder.tied_embeddings:
            self.output_projection.weight = self.embed_tokens.weight

    def stack_of(self, tokens: Sequence[int]) -> DecoderStack:
        """The layers for hypotheses that begin with these tokens, the second a language's."""
        if len(tokens) > 1 and str(tokens[1]) in self.own:
            own = self.own[str(tokens[1])]
            assert isinstance(own, DecoderStack)  # noqa: S101 - for the type checker
            return own
        return self

    def read_pivot(self, tokens: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """Read a text in the source language, for its translation to attend to instead of states.

        Args:
            tokens: [B, P] int64, its pieces and the end token, padded on the right.
            lengths: [B] int64; None means no padding.

        Returns:
            [B, P, d] float32.
        """
        valid = None
        if lengths is not None:
            valid = valid_frames(lengths, tokens.shape[1])
        hidden = self.dropout(self.embed(tokens, self.positions_up_to(tokens.shape[1])))
        return self.pivot.through(hidden, valid=valid)

    def forward(
        self,
        tokens: torch.Tensor,
        memory: torch.Tensor,
        memory_lengths: torch.Tensor,
        visible: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Teacher forcing.

        Args:
            tokens: [B, L] int64, beginning with the start token, padded on the right.
            memory: [B, S, d] encoder states.
            memory_lengths: [B] int64.
            visible: [B, L, S] bool, which states each row may see, at least one; None is all.

        Returns:
            [B, L, V] float32 logits; row t predicts token t + 1.
        """
        return self.logits(self.hidden(tokens, memory, memory_lengths, visible))

    def lattice(
        self, tokens: torch.Tensor, memory: torch.Tensor, memory_lengths: torch.Tensor
    ) -> torch.Tensor:
        """What a transducer writes next after every prefix of the text and of the source.

        The predictor reads the text once; the joiner attends from each of its states to the source
        of each step (Liu 2021, section 3).

        Args:
            tokens: [B, L] int64, beginning with the start token, padded on the right.
            memory: [B, N, S, d] encoder states that are known at each of N steps.
            memory_lengths: [B, N] int64 of them, 1 or more.

        Returns:
            [B, N, L, V] float32 logits.
        """
        steps, width = memory.shape[1], memory.shape[-1]
        seen = valid_frames(memory_lengths.flatten(), memory.shape[2])[:, None, None]
        positions = self.positions_up_to(tokens.shape[1])
        hidden: torch.Tensor = self.dropout(self.embed(tokens, positions))
        predictor = self.config.decoder.predictor_layers
        for layer in self.layers[:predictor]:
            hidden = layer(hidden)
        hidden = hidden.repeat_interleave(steps, 0)
        for layer in self.layers[predictor:]:
            hidden = layer(hidden, memory=memory.view(-1, memory.shape[2], width), seen=seen)
        return self.logits(self.layer_norm(hidden)).view(
            -1, steps, tokens.shape[1], self.config.target_pieces
        )

    def hidden(
        self,
        tokens: torch.Tensor,
        memory: torch.Tensor,
        memory_lengths: torch.Tensor,
        visible: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The states that `forward` turns into logits, [B, L, d]."""
        allowed = valid_frames(memory_lengths, memory.shape[1])[:, None, None]
        if visible is not None:
            allowed = allowed & visible[:, None]
        positions = self.positions_up_to(tokens.shape[1])
        hidden: torch.Tensor = self.dropout(self.embed(tokens, positions))
        if not self.own:
            return self.through(hidden, memory=memory, seen=allowed)
        stacks = [self.stack_of(row) for row in tokens[:, :2].tolist()]
        out = torch.empty_like(hidden)
        for stack in set(stacks):
            rows = [row for row, own in enumerate(stacks) if own is stack]
            out[rows] = stack.through(hidden[rows], memory=memory[rows], seen=allowed[rows])
        return out

    def positions_up_to(self, count: int) -> torch.Tensor:
        """[count, d] float32: the position rows of tokens 0 … count - 1."""
        if self.config.decoder.positions == "sinusoid":
            return self._sinusoids.up_to(count, self.layer_norm.weight.device)
        most = self.embed_positions.num_embeddings
        if count > most:
            raise ModelError(f"a hypothesis has {count} tokens; allowed: {most}")
        return self.embed_positions.weight[:count]

    def embed(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Tokens [B, L] or [L] with position rows [L, d] → [B, L, d] or [L, d] float32."""
        embedded: torch.Tensor = self.embed_tokens(tokens)
        return embedded * self._embedding_scale + positions

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[…, d] after the last LayerNorm → […, V] float32."""
        output: torch.Tensor = self.output_projection(hidden).float()
        return output
