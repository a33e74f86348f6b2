"""Whisper's encoder (Radford 2022) with a CTC branch beside it, for sound of any length.

Its states at 50 Hz are those of the pretrained network. They are joined into frames; a branch of a
few small layers labels the frames by CTC, and runs of one label are averaged. The decoder reads the
averaged states, to which the branch adds nothing. The branch may have its own copies of the
encoder's last layers, trained to be labelled instead of read.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from earvoice.models.config import (
    FRAME_SHIFT_MS,
    FRAME_SHIFT_SAMPLES,
    SAMPLE_RATE_HZ,
    FamilyConfig,
    ModelConfig,
    ModelRecord,
)
from earvoice.models.ctc import Encoded, compress
from earvoice.models.encoder import GrowingEncoder, SpeechEncoder, alone
from earvoice.models.families import EncoderFamily
from earvoice.models.frontend import MEL_BINS, WINDOW_SAMPLES, frame_count
from earvoice.models.inference import StridedConvolution
from earvoice.models.transformer import (
    Dropout,
    EarlierRows,
    TokenPositions,
    TransformerLayer,
    valid_frames,
)
from earvoice.runtime.parameter import ParameterError, parameter

STATE_FRAMES = 2
"""Feature frames per state, before states are joined."""
DYNAMIC_RANGE = 8.0
"""Powers of ten below the utterance's loudest value; what is lower is clamped."""
PRETRAINED_MS = 30_000
"""Longest sound in pretraining; labels and states beyond it are worth nothing."""
KEEPING_STEP_MS = 640
"""Interval at which states of a growing utterance are kept; segments end as often by default."""
LOWEST = -10.0
"""Decimal logarithm of the lowest energy in features, that of digital silence."""


@dataclasses.dataclass(frozen=True)
class CtcBranchConfig(ModelRecord):
    """Small layers beside the encoder that label its joined frames."""

    join_frames: int = parameter(2, minimum=1, maximum=4)
    """States of 20 ms in one frame; the unit of labels, run lengths and compression."""
    width: int = parameter(256, minimum=4, maximum=4096)
    heads: int = parameter(4, minimum=1, maximum=64)
    ffn_width: int = parameter(1024, minimum=1, maximum=65536)
    layers: int = parameter(2, minimum=0, maximum=24)
    upper_layers: int = parameter(0, minimum=0, maximum=96)
    """How many of the encoder's last layers the branch has its own copies of, for its labels."""


@dataclasses.dataclass(frozen=True)
class WhisperConfig(FamilyConfig):
    """The encoder; defaults are `tiny`."""

    architecture: Literal["whisper"] = "whisper"
    d_model: int = parameter(384, minimum=4, maximum=4096)
    heads: int = parameter(6, minimum=1, maximum=64)
    ffn_width: int = parameter(1536, minimum=1, maximum=65536)
    layers: int = parameter(4, minimum=1, maximum=96)
    tail_ms: int = parameter(500, minimum=0, maximum=30_000)
    """Silence appended to the sound; it gives no states of its own.

    The pretrained network always took `PRETRAINED_MS` at once, most of it silent.
    """
    lookahead_ms: int = parameter(0, minimum=0, maximum=30_000)
    """How much later sound a state of a growing utterance must have seen before it is kept.

    0 keeps none: all of the utterance is encoded anew each time.
    """
    ctc: CtcBranchConfig = dataclasses.field(default_factory=CtcBranchConfig)

    def check_together(self) -> None:
        super().check_together()
        for name, heads, width in (
            ("heads", self.heads, self.d_model),
            ("ctc.heads", self.ctc.heads, self.ctc.width),
        ):
            if width % heads:
                raise ParameterError(name, heads, f"divisors of {width}")
        if self.ctc.upper_layers > self.layers:
            raise ParameterError("ctc.upper_layers", self.ctc.upper_layers, f"0 to {self.layers}")

    @property
    def joined_frames(self) -> int:
        """Feature frames of one frame of joined states."""
        return STATE_FRAMES * self.ctc.join_frames

    @property
    def frame_shift_ms(self) -> int:
        """Time between two frames of joined states, in milliseconds."""
        return FRAME_SHIFT_MS * self.joined_frames

    @property
    def longest_utterance_ms(self) -> int:
        return PRETRAINED_MS

    @property
    def description(self) -> str:
        upper = f"{self.ctc.upper_layers} such layers and " if self.ctc.upper_layers else ""
        return (
            f"whisper, {self.layers} layers, {self.d_model} wide, {self.heads} heads, "
            f"{self.tail_ms} ms of silence after the sound, CTC beside it in {upper}"
            f"{self.ctc.layers} layers {self.ctc.width} wide, {self.compression}, "
            f"{self.frame_shift_ms} ms a frame"
        )


class WhisperFilterbank:
    """Whisper's log-mel before it is clamped: 80 bins, 25 ms around each frame, every 10 ms.

    The utterance's loudest value, which decides what is clamped, is known only to the encoder.
    """

    lead_samples = WINDOW_SAMPLES // 2
    scale = 1.0

    def __init__(self) -> None:
        self._window = torch.hann_window(WINDOW_SAMPLES)
        self._mel = _slaney_mel()

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """[n] float32 sound in [-1, 1] → [whole windows, 80] float32 decimal logarithms ≥ -10."""
        windows = samples.unfold(0, WINDOW_SAMPLES, FRAME_SHIFT_SAMPLES) * self._window
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


def _layers(config: WhisperConfig, count: int, dropout: float) -> nn.ModuleList:
    return nn.ModuleList(
        TransformerLayer(
            config.d_model,
            config.heads,
            config.ffn_width,
            dropout,
            activation="gelu",
            key_bias=False,
        )
        for _ in range(count)
    )


class CtcBranch(nn.Module):
    """Upper layers of its own, join, layers, LayerNorm, head; the blank is the last label.

    The upper layers have the shape and the input of the encoder's own last layers.
    """

    def __init__(self, config: WhisperConfig, labels: int, dropout: float) -> None:
        super().__init__()
        ctc = config.ctc
        self.upper = _layers(config, ctc.upper_layers, dropout)
        self.upper_layer_norm = nn.LayerNorm(config.d_model) if ctc.upper_layers else nn.Identity()
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
        self.layers = _layers(self.config, self.config.layers, dropout)
        self.layer_norm = nn.LayerNorm(width)
        self.ctc = CtcBranch(self.config, config.source_pieces + 1, dropout)
        self.dropout = Dropout(dropout)
        self._positions = TokenPositions(width, first=0)
        self._convolutions: nn.ModuleList | None = None

    def forward(self, features: torch.Tensor, lengths: torch.Tensor | None = None) -> Encoded:
        """See `SpeechEncoder.forward`; the features are those of `WhisperFilterbank`."""
        states, read, state_lengths = self.hear(features, lengths)
        joined = self.joined(states)
        heard = None if lengths is None else state_lengths // self.config.ctc.join_frames
        ctc_log_probs = self.label(self.joined(read), heard)
        if lengths is None:
            lengths = state_lengths.new_full(state_lengths.shape, features.shape[1])
        return self.compressed(joined, ctc_log_probs, lengths)

    def open_utterance(self) -> GrowingEncoder:
        return (
            GrowingUtterance(self).encode if self.config.lookahead_ms else super().open_utterance()
        )

    def joined(self, states: torch.Tensor) -> torch.Tensor:
        """[B, S, d] → [B, T', join · d]."""
        join = self.config.ctc.join_frames
        return states.reshape(len(states), -1, join * self.config.d_model)

    def compressed(
        self, joined: torch.Tensor, ctc_log_probs: torch.Tensor, lengths: torch.Tensor
    ) -> Encoded:
        """Compress the states for the decoder, without the silence after the sound.

        Args:
            joined: [B, T', join · d].
            ctc_log_probs: [B, T', V+1].
            lengths: [B] int64 feature frames of each utterance.
        """
        # Policies that check the last states, like EDAtt, must see the sound's end, not silence.
        frame_lengths = -(-lengths // self.config.joined_frames)
        frames = int(frame_lengths.max())
        parts = joined[:, :frames].reshape(len(joined), frames, -1, self.config.d_model)
        log_probs = ctc_log_probs[:, :frames]
        return compress(parts.mean(2), frame_lengths, log_probs, self.config.compression)

    def hear(
        self,
        features: torch.Tensor,
        lengths: torch.Tensor | None = None,
        first_frame: int = 0,
        earlier: Sequence[EarlierRows] = (),
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute the pretrained part.

        Args:
            features: [B, T, 80] float32 of `WhisperFilterbank`.
            lengths: [B] int64 frames of each utterance, or None when nothing is padded.
            first_frame: first joined frame that is wanted; more than 0 only without padding.
            earlier: for each layer, its keys and values for the states before.

        Returns:
            [B, S, d] float32 states of 20 ms, zero where padded; the branch's input, of the same
            shape: that of its upper layers or, where it has none, the states; and each utterance's
            number of states [B] int64. The silence after the sound is included; S is a multiple of
            `join_frames`.
        """
        frames = features.shape[1]
        full = features.new_full(features.shape[:1], frames, dtype=torch.long)
        hidden, frame_lengths = self._with_tail(features, full if lengths is None else lengths)
        state_lengths = frame_lengths // STATE_FRAMES
        valid = None
        if lengths is not None:
            valid = valid_frames(state_lengths, hidden.shape[1] // STATE_FRAMES)
        # The first state needs two feature frames before its own; the convolutions' outputs for
        # these, which would need still earlier ones, are dropped.
        begin = max(0, (first_frame - 1) * self.config.joined_frames)
        first = first_frame * self.config.ctc.join_frames
        hidden = self._convolved(hidden[:, begin:], frame_lengths, valid)
        hidden = hidden[:, first - begin // STATE_FRAMES :]
        hidden = hidden + self._positions.up_to(first + hidden.shape[1], hidden.device)[first:]
        heard = None if lengths is None else state_lengths
        upper = self.config.ctc.upper_layers
        below = self.config.layers - upper
        hidden = self._through(self.layers[:below], self.dropout(hidden), heard, earlier[:below])
        states = self.layer_norm(self._through(self.layers[below:], hidden, heard, earlier[below:]))
        if valid is not None:
            hidden, states = hidden * valid[..., None], states * valid[..., None]
        return states, hidden if upper else states, state_lengths

    def label(
        self,
        joined: torch.Tensor,
        lengths: torch.Tensor | None = None,
        earlier: Sequence[EarlierRows] = (),
    ) -> torch.Tensor:
        """[B, T', join · d] and [B] frames of each → [B, T', V+1] log-probabilities.

        `joined` is the branch's input from `hear`; `earlier` has for each of its layers, the upper
        ones first, the keys and values for the frames before.
        """
        upper = self.config.ctc.upper_layers
        read = self._read_by_branch(joined, lengths, earlier[:upper])
        return self._log_probs(self._through(self.ctc.layers, read, lengths, earlier[upper:]))

    def label_half_way(
        self, joined: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities as if the branch ended half-way, and those of `label`."""
        half = len(self.ctc.layers) // 2
        read = self._read_by_branch(joined, lengths)
        first = self._through(self.ctc.layers[:half], read, lengths)
        last = self._through(self.ctc.layers[half:], first, lengths)
        return self._log_probs(first), self._log_probs(last)

    def _read_by_branch(
        self,
        joined: torch.Tensor,
        lengths: torch.Tensor | None,
        earlier: Sequence[EarlierRows] = (),
    ) -> torch.Tensor:
        """[B, T', join · d] → [B, T', width]."""
        if self.config.ctc.upper_layers:
            join = self.config.ctc.join_frames
            states = joined.reshape(len(joined), -1, self.config.d_model)
            counts = None if lengths is None else join * lengths
            states = self.ctc.upper_layer_norm(
                self._through(self.ctc.upper, states, counts, earlier)
            )
            if counts is not None:
                states = states * valid_frames(counts, states.shape[1])[..., None]
            joined = self.joined(states)
        read: torch.Tensor = self.dropout(self.ctc.join(joined))
        return read

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
        """Clamp, scale and append silence: [B, T, 80] → [B, T + tail, 80], zero where padded.

        The number of frames becomes a multiple of what one joined frame takes.
        """
        unit = self.config.joined_frames
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


def _frames_after_steps(count: int) -> int:
    """Feature frames that this many steps of sound complete; most often a segment ends there."""
    samples = count * KEEPING_STEP_MS * SAMPLE_RATE_HZ // 1000
    return frame_count(samples, WhisperFilterbank.lead_samples)


class GrowingUtterance:
    """An utterance that is encoded repeatedly as it grows, without encoding all of it anew.

    Every state attends to all of the sound, so later sound changes it, but little if it comes
    seconds later. So at every `KEEPING_STEP_MS` of sound, the states that have seen `lookahead_ms`
    after them are kept unchanged, with each layer's keys and values, to which later states attend.
    What is kept is a function of the sound alone, not of when `encode` was called.
    """

    def __init__(self, encoder: WhisperEncoder) -> None:
        self._encoder = encoder
        self._earlier = [EarlierRows() for _ in encoder.layers]
        self._earlier_upper = [EarlierRows() for _ in encoder.ctc.upper]
        self._earlier_labelled = [EarlierRows() for _ in encoder.ctc.layers]
        self._kept: tuple[torch.Tensor, ...] = ()
        """[1, F, join · d] joined states and [1, F, V+1] log-probabilities."""
        self._step_count = 0

    @torch.inference_mode()
    def encode(self, features: torch.Tensor) -> tuple[Encoded, bool]:
        """See `GrowingEncoder`; each call has more features than the last."""
        batch, config = self._encoder.one_batch(features), self._encoder.config
        frames = batch.shape[1]
        while (end := _frames_after_steps(self._step_count + 1)) <= frames:
            self._step_count += 1
            count = (end - config.lookahead_ms // FRAME_SHIFT_MS) // config.joined_frames
            if count <= 0:
                continue
            is_whole = not self._kept
            heard = self._hear(batch[:, :end])
            self._kept = tuple([rows[:, :count] for rows in heard])
            for layer in (*self._earlier, *self._earlier_upper):
                layer.keep(count * config.ctc.join_frames)
            for layer in self._earlier_labelled:
                layer.keep(count)
            if end == frames:
                return self._encoded(heard, frames), is_whole
        heard = self._hear(batch)
        for layer in (*self._earlier, *self._earlier_upper, *self._earlier_labelled):
            layer.drop()
        return self._encoded(heard, frames), not self._kept

    def _hear(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[1, T, 80] → joined states and log-probabilities, including those kept."""
        encoder = self._encoder
        count = self._kept[0].shape[1] if self._kept else 0
        states, read, _ = encoder.hear(features, first_frame=count, earlier=self._earlier)
        earlier = (*self._earlier_upper, *self._earlier_labelled)
        labelled = encoder.label(encoder.joined(read), earlier=earlier)
        heard = (encoder.joined(states), labelled)
        if not self._kept:
            return heard
        return tuple([torch.cat(pair, dim=1) for pair in zip(self._kept, heard, strict=True)])

    def _encoded(self, heard: tuple[torch.Tensor, ...], frames: int) -> Encoded:
        joined, log_probs = heard
        lengths = torch.full((1,), frames, device=joined.device)
        return alone(self._encoder.compressed(joined, log_probs, lengths))


FAMILY = EncoderFamily(config=WhisperConfig, encoder=WhisperEncoder, analysis=WhisperFilterbank)
