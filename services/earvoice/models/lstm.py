"""Nguyen 2021, section 2.1: VGG-like convolutions, bidirectional LSTMs, a decoder of LSTMs.

The decoder has one attention, Bahdanau's: its query is the first layer's state before the token.
Defaults are the paper's sizes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from earvoice.models.config import FRAME_SHIFT_MS, FamilyConfig, ModelConfig
from earvoice.models.ctc import Encoded, compress
from earvoice.models.encoder import SpeechEncoder
from earvoice.models.errors import ModelError
from earvoice.models.families import EncoderFamily
from earvoice.models.frontend import Filterbank
from earvoice.models.transformer import Dropout, valid_frames
from earvoice.models.vocabulary import PAD
from earvoice.runtime.parameter import parameter

POOLED_FRAMES = 4
"""Each of two poolings halves time and bins."""


@dataclasses.dataclass(frozen=True)
class LstmConfig(FamilyConfig):
    """The encoder; `d_model` is the width of its states."""

    architecture: Literal["lstm"] = "lstm"
    d_model: int = parameter(1024, minimum=4, maximum=4096)
    compression: Literal["none", "avg", "weighted", "softmax", "fixed"] = "none"
    channels: int = parameter(64, minimum=1, maximum=1024)
    """Of the first block's convolutions; the second has twice as many."""
    layers: int = parameter(5, minimum=1, maximum=24)
    cells: int = parameter(1024, minimum=1, maximum=8192)
    """Of each layer and direction."""

    @property
    def frame_shift_ms(self) -> int:
        return FRAME_SHIFT_MS * POOLED_FRAMES

    @property
    def description(self) -> str:
        return (
            f"lstm, convolutions of {self.channels} and {2 * self.channels} channels, "
            f"{self.layers} bidirectional layers of {self.cells} cells, {self.d_model} wide, "
            f"{self.compression}, {self.frame_shift_ms} ms a frame"
        )


class LstmEncoder(SpeechEncoder):
    """Features of T frames and D bins become T/4 of D/4, then states; a CTC head reads them too."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__(config.mel_bins)
        assert isinstance(config.encoder, LstmConfig)  # noqa: S101 - the family's row says so
        self.config = config.encoder
        narrow, wide = self.config.channels, 2 * self.config.channels
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in block)
            for block in (((1, narrow), (narrow, narrow)), ((narrow, wide), (wide, wide)))
        )
        self.lstm = nn.LSTM(
            wide * (config.mel_bins // POOLED_FRAMES),
            self.config.cells,
            self.config.layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if self.config.layers > 1 else 0.0,
        )
        self.states = nn.Linear(2 * self.config.cells, self.config.d_model)
        self.ctc_fc = nn.Linear(self.config.d_model, config.source_pieces + 1)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        if lengths is None:
            lengths = features.new_full(features.shape[:1], features.shape[1], dtype=torch.long)
        image, lengths = self._convolved(features[:, None], lengths)
        rows = image.transpose(1, 2).flatten(2)
        packed = pack_padded_sequence(rows, lengths.cpu(), batch_first=True, enforce_sorted=False)
        heard, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=rows.shape[1]
        )
        states = self.states(heard).tanh() * valid_frames(lengths, rows.shape[1])[..., None]
        log_probs = self.ctc_fc(states).float().log_softmax(-1)
        return compress(states, lengths, log_probs, self.config.compression)

    def _convolved(
        self, image: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, 1, T, D] → [B, channels, ⌈T/4⌉, D/4] and the lengths; zero where padded."""
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)  # noqa: S101 - for the type checker
            for convolution in block:
                valid = valid_frames(lengths, image.shape[2])[:, None, :, None]
                image = functional.relu(convolution(image)) * valid
            image = functional.max_pool2d(image, 2, ceil_mode=True)
            lengths = (lengths + 1) // 2
        return image, lengths


class LstmCache:
    """What the decoder keeps per hypothesis: its state after each token, and the source's keys."""

    def __init__(self, memory: torch.Tensor, keys: torch.Tensor) -> None:
        """`memory` [S, d] encoder states, `keys` [S, cells]."""
        self.memory, self.keys = memory, keys
        self.after: list[LstmState] = []

    @property
    def length(self) -> int:
        return len(self.after)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ModelError(f"length is {length}; allowed: 0 to {self.length}")
        del self.after[length:]


LstmState = list[tuple[torch.Tensor, torch.Tensor]]
"""Hidden and cell state [B, cells] of each layer."""


class LstmDecoder(nn.Module):
    """z_j = decode(h, z_{j-1}, y_{j-1}), y_j = predict(z_j) (Nguyen 2021, equations 2 and 3)."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        width, cells = config.encoder.d_model, config.decoder.ffn_width
        self.embed_tokens = nn.Embedding(config.target_pieces, width, padding_idx=PAD)
        inputs = [2 * width, *[cells] * (config.decoder.layers - 1)]
        self.layers = nn.ModuleList(nn.LSTMCell(size, cells) for size in inputs)
        self.attention_query = nn.Linear(cells, cells, bias=False)
        self.attention_key = nn.Linear(width, cells)
        self.attention_score = nn.Linear(cells, 1, bias=False)
        self.output = nn.Linear(cells + width, width)
        self.output_projection = nn.Linear(width, config.target_pieces, bias=False)
        self.dropout = Dropout(dropout)
        self.tie_embeddings()

    def tie_embeddings(self) -> None:
        if self.config.decoder.tied_embeddings:
            self.output_projection.weight = self.embed_tokens.weight

    def forward(
        self,
        tokens: torch.Tensor,
        memory: torch.Tensor,
        memory_lengths: torch.Tensor,
        visible: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Teacher forcing; see `TransformerDecoder.forward`."""
        keys = self.attention_key(memory)
        allowed = valid_frames(memory_lengths, memory.shape[1])
        state = self._begin(len(tokens), memory)
        rows = []
        for place, token in enumerate(tokens.unbind(1)):
            seen = allowed if visible is None else allowed & visible[:, place]
            state, logits, _ = self._read(token, state, memory, keys, seen)
            rows.append(logits)
        return torch.stack(rows, 1)

    @torch.inference_mode()
    def open_cache(self, states: torch.Tensor) -> LstmCache:
        width = self.config.encoder.d_model
        if states.ndim != 2 or states.shape[0] < 1 or states.shape[1] != width:  # noqa: PLR2004 - two axes
            raise ModelError(f"states have shape {tuple(states.shape)}; allowed: [S ≥ 1, {width}]")
        states = states.to(self.embed_tokens.weight.device)
        return LstmCache(states, self.attention_key(states))

    @torch.inference_mode()
    def prefill(
        self,
        tokens: list[int],
        cache: LstmCache,
        attention_layer: int,
        attention_heads: Sequence[int] = (),
        *,
        first_logits: int = 0,
        first_attention: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `CachedDecoder.prefill`; there is one attention, so layer and heads are ignored."""
        del attention_layer, attention_heads
        memory, keys = cache.memory[None], cache.keys[None]
        logits, attention = [], []
        for token in torch.tensor(tokens, device=memory.device):
            state = cache.after[-1] if cache.after else self._begin(1, memory)
            state, row, weights = self._read(token[None], state, memory, keys)
            cache.after.append(state)
            logits.append(row[0])
            attention.append(weights[0])
        return torch.stack(logits[first_logits:]), torch.stack(attention[first_attention:])

    def _begin(self, batch: int, memory: torch.Tensor) -> LstmState:
        nothing = memory.new_zeros(batch, self.config.decoder.ffn_width)
        return [(nothing, nothing)] * len(self.layers)

    def _read(
        self,
        token: torch.Tensor,
        state: LstmState,
        memory: torch.Tensor,
        keys: torch.Tensor,
        allowed: torch.Tensor | None = None,
    ) -> tuple[LstmState, torch.Tensor, torch.Tensor]:
        """[B] tokens → the next state, logits [B, V] and attention [B, S], both float32."""
        query = self.attention_query(state[0][0])[:, None]
        scores = self.attention_score((keys + query).tanh())[..., 0].float()
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = scores.softmax(-1)
        context = (weights[:, None] @ memory)[:, 0]
        hidden = torch.cat((self.dropout(self.embed_tokens(token)), context), 1)
        following: LstmState = []
        for layer, before in zip(self.layers, state, strict=True):
            after = layer(hidden, before)
            following.append(after)
            hidden = self.dropout(after[0])
        read = self.output(torch.cat((hidden, context), 1)).tanh()
        return following, self.output_projection(read).float(), weights


FAMILY = EncoderFamily(config=LstmConfig, encoder=LstmEncoder, analysis=Filterbank)
