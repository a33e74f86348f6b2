"""Whisper's encoder (Radford 2022) with a CTC branch beside it, for sound of any length.

Its states at 50 Hz are what the pretrained network computes. They are joined to frames; a branch of
a few small layers labels these by CTC, and runs of one label are averaged. The decoder reads the
averages, so nothing of the branch flows into what it reads.
"""

import dataclasses
import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import (
    FRAME_SHIFT_MS,
    SAMPLE_RATE_HZ,
    FamilyConfig,
    ModelConfig,
    ModelRecord,
)
from earvoice.models.conformer import valid_frames
from earvoice.models.ctc import Encoded, compress
from earvoice.models.encoder import SpeechEncoder
from earvoice.models.families import EncoderFamily
from earvoice.models.frontend import MEL_BINS, SHIFT_SAMPLES, WINDOW_SAMPLES
from earvoice.models.inference import StridedConvolution
from earvoice.models.transformer import Dropout, TokenPositions, TransformerLayer
from earvoice.runtime.parameter import ParameterError, parameter

STATE_FRAMES = 2
"""Feature frames of one state before states are joined."""
DYNAMIC_RANGE = 8.0
"""Powers of ten below the utterance's loudest value that are heard."""
PRETRAINED_MS = 30_000
"""What the pretrained network has heard at most; behind it labels and states are worth nothing."""
LOWEST = -10.0
"""Logarithm of the least energy that is told, that of digital silence."""


@dataclasses.dataclass(frozen=True)
class CtcBranchConfig(ModelRecord):
    """Small layers beside the encoder that label its joined frames."""

    join_frames: int = parameter(2, minimum=1, maximum=4)
    """States of 20 ms in one frame; the unit of labels, run lengths and compression."""
    width: int = parameter(256, minimum=4, maximum=4096)
    heads: int = parameter(4, minimum=1, maximum=64)
    ffn_width: int = parameter(1024, minimum=1, maximum=65536)
    layers: int = parameter(2, minimum=0, maximum=24)


@dataclasses.dataclass(frozen=True)
class WhisperConfig(FamilyConfig):
    """The encoder; defaults are `tiny`."""

    architecture: Literal["whisper"] = "whisper"
    d_model: int = parameter(384, minimum=4, maximum=4096)
    heads: int = parameter(6, minimum=1, maximum=64)
    ffn_width: int = parameter(1536, minimum=1, maximum=65536)
    layers: int = parameter(4, minimum=1, maximum=96)
    tail_ms: int = parameter(500, minimum=0, maximum=30_000)
    """Silence that is heard after the sound and gives no states of its own.

    The pretrained network has heard `PRETRAINED_MS` each time, most of them silent.
    """
    ctc: CtcBranchConfig = dataclasses.field(default_factory=CtcBranchConfig)

    def check_together(self) -> None:
        for name, heads, width in (
            ("heads", self.heads, self.d_model),
            ("ctc.heads", self.ctc.heads, self.ctc.width),
        ):
            if width % heads:
                raise ParameterError(name, heads, f"divisors of {width}")

    @property
    def frame_shift_ms(self) -> int:
        """Time between two frames of joined states, in milliseconds."""
        return FRAME_SHIFT_MS * STATE_FRAMES * self.ctc.join_frames

    @property
    def longest_utterance_ms(self) -> int:
        return PRETRAINED_MS

    @property
    def description(self) -> str:
        return (
            f"whisper, {self.layers} layers, {self.d_model} wide, {self.heads} heads, "
            f"{self.tail_ms} ms of silence after the sound, CTC beside it in {self.ctc.layers} "
            f"layers {self.ctc.width} wide, {self.compression}, {self.frame_shift_ms} ms a frame"
        )


class WhisperFilterbank:
    """Whisper's log-mel before it is clamped: 80 bins, 25 ms around each frame, every 10 ms.

    The utterance's loudest value, which decides what is clamped, is known to the encoder alone.
    """

    lead_samples = WINDOW_SAMPLES // 2
    scale = 1.0

    def __init__(self) -> None:
        self._window = torch.hann_window(WINDOW_SAMPLES)
        self._mel = _slaney_mel()

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """[n] float32 sound in [-1, 1] → [whole windows, 80] float32 decimal logarithms ≥ -10."""
        windows = samples.unfold(0, WINDOW_SAMPLES, SHIFT_SAMPLES) * self._window
        energies: torch.Tensor = torch.fft.rfft(windows).abs().square() @ self._mel
        return energies.clamp(min=10**LOWEST).log10()


def _slaney_mel() -> torch.Tensor:
    """[201, 80] float32: Slaney's triangles of equal area, linear to 1 kHz, then logarithmic."""
    bins_hz = torch.linspace(0, SAMPLE_RATE_HZ / 2, WINDOW_SAMPLES // 2 + 1, dtype=torch.float64)
    hz_a_mel, linear_mels, mels_a_log = 200 / 3, 15.0, 27 / math.log(6.4)
    highest = linear_mels + mels_a_log * math.log(SAMPLE_RATE_HZ / 2 / (linear_mels * hz_a_mel))
    mels = torch.linspace(0, highest, MEL_BINS + 2, dtype=torch.float64)
    edges_hz = torch.where(
        mels < linear_mels,
        mels * hz_a_mel,
        linear_mels * hz_a_mel * ((mels - linear_mels) / mels_a_log).exp(),
    )
    left, centre, right = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising = (bins_hz[:, None] - left) / (centre - left)
    falling = (right - bins_hz[:, None]) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * 2 / (right - left)).float()


class CtcBranch(nn.Module):
    """Join, layers, LayerNorm, head; the blank is the last label."""

    def __init__(self, config: WhisperConfig, labels: int, dropout: float) -> None:
        super().__init__()
        ctc = config.ctc
        self.join = nn.Linear(ctc.join_frames * config.d_model, ctc.width)
        self.layers = nn.ModuleList(
            TransformerLayer(
                ctc.width, ctc.heads, ctc.ffn_width, dropout, activation="gelu", key_bias=False
            )
            for _ in range(ctc.layers)
        )
        self.layer_norm = nn.LayerNorm(ctc.width)
        self.head = nn.Linear(ctc.width, labels)


class WhisperEncoder(SpeechEncoder):
    """`encoder.conv1` to `encoder.layer_norm` as in `transformers`, `encoder.ctc` beside it."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__(config.mel_bins)
        assert isinstance(config.encoder, WhisperConfig)  # noqa: S101 - the family's row says so
        self.config = config.encoder
        width = self.config.d_model
        self.conv1 = nn.Conv1d(config.mel_bins, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=STATE_FRAMES, padding=1)
        self.layers = nn.ModuleList(
            TransformerLayer(
                width,
                self.config.heads,
                self.config.ffn_width,
                dropout,
                activation="gelu",
                key_bias=False,
            )
            for _ in range(self.config.layers)
        )
        self.layer_norm = nn.LayerNorm(width)
        self.ctc = CtcBranch(self.config, config.source_pieces + 1, dropout)
        self.dropout = Dropout(dropout)
        self._positions = TokenPositions(width, first=0)
        self._convolutions: nn.ModuleList | None = None

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        """See `SpeechEncoder.forward`; the features are those of `WhisperFilterbank`."""
        states, state_lengths = self.hear(features, lengths)
        join = self.config.ctc.join_frames
        joined = states.view(len(states), -1, join, self.config.d_model)
        heard = None if lengths is None else state_lengths // join
        ctc_log_probs = self.label(joined.flatten(2), heard)
        if lengths is None:
            lengths = state_lengths.new_full(state_lengths.shape, features.shape[1])
        # What looks at the last states, as EDAtt does, is to see the sound's end and no silence.
        frame_lengths = -(-lengths // (STATE_FRAMES * join))
        frames = int(frame_lengths.max())
        ctc_log_probs = ctc_log_probs[:, :frames]
        states = joined[:, :frames].mean(2)
        return compress(states, frame_lengths, ctc_log_probs, self.config.compression)

    def hear(
        self, features: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The pretrained part.

        Args:
            features: [B, T, 80] float32 of `WhisperFilterbank`.
            lengths: [B] int64 frames of each utterance, or None when nothing is padded.

        Returns:
            [B, S, d] float32 states of 20 ms, zero where padded, and their numbers [B] int64; the
            silence after the sound included, S a multiple of what is joined.
        """
        frames = features.shape[1]
        full = features.new_full(features.shape[:1], frames, dtype=torch.long)
        hidden, frame_lengths = self._with_tail(features, full if lengths is None else lengths)
        state_lengths = frame_lengths // STATE_FRAMES
        valid = None
        if lengths is not None:
            valid = valid_frames(state_lengths, hidden.shape[1] // STATE_FRAMES)
        hidden = self._convolved(hidden, frame_lengths, valid)
        hidden = hidden + self._positions.up_to(hidden.shape[1], hidden.device)
        heard = None if lengths is None else state_lengths
        hidden = self.layer_norm(self._through(self.layers, self.dropout(hidden), heard))
        return hidden if valid is None else hidden * valid[..., None], state_lengths

    def label(self, joined: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """[B, T', join · d] states and [B] frames of each → [B, T', V+1] log-probabilities."""
        hidden = self._through(self.ctc.layers, self.dropout(self.ctc.join(joined)), lengths)
        return self._log_probs(hidden)

    def label_half_way(
        self, joined: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `label`, and before that as if the branch ended with half of its layers."""
        half = len(self.ctc.layers) // 2
        first = self._through(self.ctc.layers[:half], self.dropout(self.ctc.join(joined)), lengths)
        last = self._through(self.ctc.layers[half:], first, lengths)
        return self._log_probs(first), self._log_probs(last)

    def _log_probs(self, hidden: torch.Tensor) -> torch.Tensor:
        log_probs: torch.Tensor = self.ctc.head(self.ctc.layer_norm(hidden)).float().log_softmax(-1)
        return log_probs

    def prepare(self, dtype: torch.dtype) -> None:
        """For inference only: see `earvoice.models.inference`."""
        self._convolutions = nn.ModuleList(
            StridedConvolution(conv, dtype, activation="gelu") for conv in (self.conv1, self.conv2)
        )
        super().prepare(dtype)

    def _with_tail(
        self, features: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Clamp, scale and let silence follow: [B, T, 80] → [B, T + tail, 80], zero where padded.

        The number of frames becomes a multiple of what one joined frame takes.
        """
        unit = STATE_FRAMES * self.config.ctc.join_frames
        frames = features.shape[1]
        sound = valid_frames(lengths, frames)[..., None]
        loudest = features.masked_fill(~sound, LOWEST).amax((1, 2), keepdim=True)
        silence = loudest - DYNAMIC_RANGE
        heard = torch.where(sound, torch.maximum(features, silence), silence)
        tail = self.config.tail_ms // FRAME_SHIFT_MS
        ends = -(-(lengths + tail) // unit) * unit
        total = -(-(frames + tail) // unit) * unit
        heard = torch.cat((heard, silence.expand(-1, total - frames, MEL_BINS)), dim=1)
        return (heard + 4.0) / 4.0 * valid_frames(ends, total)[..., None], ends

    def _convolved(
        self, features: torch.Tensor, lengths: torch.Tensor, valid: torch.Tensor | None
    ) -> torch.Tensor:
        """[B, T, 80] → [B, T / 2, d] float32; what is beyond an utterance's end is zero."""
        if self._convolutions is not None and valid is None:
            for convolution in self._convolutions:
                features = convolution(features)
            return features
        hidden = functional.gelu(self.conv1(features.transpose(1, 2)))
        if valid is not None:
            hidden = hidden * valid_frames(lengths, hidden.shape[2])[:, None]
        return functional.gelu(self.conv2(hidden)).transpose(1, 2).float()


FAMILY = EncoderFamily(config=WhisperConfig, encoder=WhisperEncoder, analysis=WhisperFilterbank)
