"""Every number that says what a model is."""

import dataclasses
from typing import Literal

from earvoice.models.errors import ModelConfigError
from earvoice.models.schema import Record, bounded

SAMPLE_RATE_HZ = 16_000
"""Rate of the sound that every model takes; the services resample before."""

FRAME_SHIFT_MS = 10
"""Distance between two feature frames."""

Compression = Literal["none", "avg", "weighted", "softmax", "fixed"]
PositionScheme = Literal["released", "relative"]
PolicyName = Literal["edatt", "align_att", "local_agreement", "hold_n", "wait_k"]


@dataclasses.dataclass(frozen=True)
class SubsamplerConfig(Record):
    """Convolutions of stride 2 in front of the encoder; each halves the frame rate."""

    layers: int = bounded(2, minimum=1, maximum=4)
    kernel_frames: int = bounded(5, minimum=1, maximum=31)
    channels: int = bounded(1024, minimum=2, maximum=8192)
    """Output channels of every convolution but the last, before the gated linear unit halves them.

    The last one has twice the encoder's width.
    """


@dataclasses.dataclass(frozen=True)
class EncoderConfig(Record):
    """The speech encoder; `ctc_layer` counts from 1."""

    architecture: Literal["conformer", "transformer"] = "conformer"
    d_model: int = bounded(512, minimum=4, maximum=4096)
    heads: int = bounded(8, minimum=1, maximum=64)
    ffn_multiplier: int = bounded(4, minimum=1, maximum=16)
    layers: int = bounded(12, minimum=1, maximum=96)
    ctc_layer: int = bounded(8, minimum=1, maximum=96)
    compression: Compression = "avg"
    depthwise_kernel: int = bounded(31, minimum=1, maximum=127)
    positions: PositionScheme = "relative"
    subsampler: SubsamplerConfig = dataclasses.field(default_factory=SubsamplerConfig)

    def __post_init__(self) -> None:
        """Check the fields, then what they must be to each other.

        Raises:
            ModelConfigError: naming the field, its value and what is allowed.
        """
        super().__post_init__()
        _check_heads("EncoderConfig", self.heads, self.d_model)
        if self.ctc_layer > self.layers:
            message = f"EncoderConfig.ctc_layer is {self.ctc_layer}; allowed: 1 to {self.layers}"
            raise ModelConfigError(message)
        for name, width in (
            ("depthwise_kernel", self.depthwise_kernel),
            ("subsampler.kernel_frames", self.subsampler.kernel_frames),
        ):
            if width % 2 == 0:
                message = f"EncoderConfig.{name} is {width}; allowed: odd numbers"
                raise ModelConfigError(message)
        if self.d_model % 2 or self.subsampler.channels % 2:
            message = (
                f"EncoderConfig.d_model is {self.d_model} and subsampler.channels is "
                f"{self.subsampler.channels}; allowed: even numbers"
            )
            raise ModelConfigError(message)

    @property
    def frame_shift_ms(self) -> int:
        """Time between two encoder frames before compression, in milliseconds."""
        return FRAME_SHIFT_MS << self.subsampler.layers


@dataclasses.dataclass(frozen=True)
class DecoderConfig(Record):
    """The autoregressive Transformer decoder; as wide as the encoder."""

    layers: int = bounded(6, minimum=1, maximum=96)
    heads: int = bounded(8, minimum=1, maximum=64)
    ffn_width: int = bounded(2048, minimum=1, maximum=65536)
    tied_embeddings: bool = False


@dataclasses.dataclass(frozen=True)
class TargetLanguage(Record):
    """A language this model writes; `tag` is the first forced piece, empty where none is needed."""

    code: str
    tag: str = ""


@dataclasses.dataclass(frozen=True)
class PolicyDefaults(Record):
    """Decision-policy parameters calibrated for one model; a stream may override each."""

    policy: PolicyName = "edatt"
    attention_layer: int = bounded(4, minimum=1, maximum=96)
    """Decoder layer whose cross-attention is evidence, counted from 1."""
    alpha: float = bounded(0.2, minimum=0.0, maximum=1.0)
    lambda_states: int = bounded(2, minimum=1, maximum=64)
    frames: int = bounded(4, minimum=1, maximum=256)
    """AlignAtt's `f`, in encoder states."""
    segment_ms: int = bounded(800, minimum=200, maximum=10_000)
    attention_heads: tuple[int, ...] = ()
    """Heads of that layer whose mean is evidence, counted from 1; empty takes all."""
    alphas: tuple[float, ...] = ()
    """EDAtt's thresholds that trade quality for speed best, fast ones first; empty: not known."""
    frame_distances: tuple[int, ...] = ()
    """The same of AlignAtt's `f`."""


@dataclasses.dataclass(frozen=True)
class ModelConfig(Record):
    """Everything but the weights: what `config.json` in a checkpoint holds."""

    name: str
    version: str
    source_language: str
    target_languages: tuple[TargetLanguage, ...]
    source_pieces: int = bounded(minimum=1, maximum=1_000_000)
    """Source vocabulary with specials, blank not counted (the CTC head adds it as the last)."""
    target_pieces: int = bounded(minimum=5, maximum=1_000_000)
    mel_bins: int = bounded(80, minimum=80, maximum=80)
    sample_rate_hz: int = bounded(SAMPLE_RATE_HZ, minimum=SAMPLE_RATE_HZ, maximum=SAMPLE_RATE_HZ)
    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    decoder: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    policy_defaults: PolicyDefaults = dataclasses.field(default_factory=PolicyDefaults)

    def __post_init__(self) -> None:
        """Check the fields, then what they must be to each other.

        Raises:
            ModelConfigError: naming the field, its value and what is allowed.
        """
        super().__post_init__()
        _check_heads("DecoderConfig", self.decoder.heads, self.encoder.d_model)
        layer, layers = self.policy_defaults.attention_layer, self.decoder.layers
        if layer > layers:
            message = f"PolicyDefaults.attention_layer is {layer}; allowed: 1 to {layers}"
            raise ModelConfigError(message)
        heads = self.policy_defaults.attention_heads
        if not all(1 <= head <= self.decoder.heads for head in heads):
            message = (
                f"PolicyDefaults.attention_heads is {heads}; allowed: 1 to {self.decoder.heads}"
            )
            raise ModelConfigError(message)
        if not self.target_languages:
            message = "ModelConfig.target_languages is (); allowed: at least one language"
            raise ModelConfigError(message)

    @property
    def blank(self) -> int:
        """The CTC blank's index: the last output of the CTC head."""
        return self.source_pieces


def _check_heads(name: str, heads: int, d_model: int) -> None:
    if d_model % heads:
        message = f"{name}.heads is {heads}; allowed: divisors of d_model, {d_model}"
        raise ModelConfigError(message)
