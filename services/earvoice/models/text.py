"""An encoder for a text source: pieces become states (Vaswani 2017; unidirectional in Han 2020).

Eight layers are Han's, the widths Vaswani's base. There is no CTC: each piece has one state.
"""

import dataclasses
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from earvoice.models.config import FamilyConfig, ModelConfig
from earvoice.models.ctc import Encoded
from earvoice.models.encoder import SpeechEncoder
from earvoice.models.families import EncoderFamily
from earvoice.models.transformer import Dropout, TokenPositions, TransformerLayer, valid_frames
from earvoice.models.vocabulary import EOS, PAD, Vocabulary
from earvoice.runtime.audio_format import WORDS_PER_SECOND
from earvoice.runtime.parameter import ParameterError, parameter


@dataclasses.dataclass(frozen=True)
class TextConfig(FamilyConfig):
    """The encoder; `causal` lets no piece see a later one, so that its state never changes."""

    architecture: Literal["text"] = "text"
    compression: Literal["none"] = "none"
    layers: int = parameter(8, minimum=1, maximum=96)
    heads: int = parameter(8, minimum=1, maximum=64)
    ffn_width: int = parameter(2048, minimum=1, maximum=65536)
    causal: bool = True

    def check_together(self) -> None:
        super().check_together()
        if self.d_model % (2 * self.heads):
            raise ParameterError(
                "heads", self.heads, f"divisors of half of d_model, {self.d_model}"
            )

    @property
    def frame_shift_ms(self) -> int:
        """Milliseconds per word."""
        return 1000 // WORDS_PER_SECOND

    @property
    def description(self) -> str:
        way = "one way" if self.causal else "both ways"
        return f"text, {self.layers} layers {way}, {self.d_model} wide, {self.heads} heads"


class TextEncoder(SpeechEncoder):
    """Embedding, sinusoids, Transformer layers, LayerNorm; `features` are pieces [B, P, 1]."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__(mel_bins=1)
        assert isinstance(config.encoder, TextConfig)  # noqa: S101 - the family's row says so
        self.config = config.encoder
        width = self.config.d_model
        self.embed_tokens = nn.Embedding(config.source_pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embed_tokens.weight, std=width**-0.5)
        self.layers = nn.ModuleList(
            TransformerLayer(
                width, self.config.heads, self.config.ffn_width, dropout, causal=self.config.causal
            )
            for _ in range(self.config.layers)
        )
        self.layer_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self._positions = TokenPositions(width)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        """See `SpeechEncoder.forward`; states' labels are the pieces, there is no CTC output."""
        pieces = features[..., 0].long()
        if lengths is None:
            lengths = pieces.new_full(pieces.shape[:1], pieces.shape[1])
        valid = valid_frames(lengths, pieces.shape[1])
        embedded = self.embed_tokens(pieces) * self.config.d_model**0.5
        hidden = self.dropout(embedded + self._positions.up_to(pieces.shape[1], pieces.device))
        hidden = self._through(self.layers, hidden, lengths)
        labels = pieces.masked_fill(~valid, -1)
        states = self.layer_norm(hidden) * valid[..., None]
        nothing = states.new_empty(*pieces.shape, 0)
        return Encoded(states, lengths, labels, valid.long(), labels, nothing, lengths)


def source_pieces(
    words: Iterable[str], vocabulary: Vocabulary, *, ended: bool
) -> tuple[list[int], list[int]]:
    """Return the pieces of a text source, and for each how many words have been read up to it.

    Each word is split by itself, so that no later word changes its pieces.

    Args:
        ended: whether the sentence is over; an end-of-sentence piece then follows its last word.
    """
    pieces, places = list[int](), list[int]()
    for place, word in enumerate(words, start=1):
        own = vocabulary.encode(word)
        pieces += own
        places += [place] * len(own)
    if ended and pieces:
        pieces.append(EOS)
        places.append(places[-1])
    return pieces, places


FAMILY = EncoderFamily(config=TextConfig, encoder=TextEncoder, analysis=None)
