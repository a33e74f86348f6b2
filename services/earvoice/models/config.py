"""Every number that defines a model, and the named presets."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

from earvoice.models.errors import ModelError, ModelFieldError
from earvoice.models.families import FAMILIES, family_of
from earvoice.policies import POLICIES, AlignAtt, Edatt
from earvoice.policies.registry import parse_policy, split_policy_text
from earvoice.runtime.parameter import Declared, ParameterError, parameter, same_parameter
from earvoice.runtime.stream_ranges import SEGMENT_MS

SAMPLE_RATE_HZ = 16_000
"""Rate of the sound that every model takes; the services resample to it."""

FRAME_SHIFT_MS = 10
"""Distance between two feature frames."""
FRAME_SHIFT_SAMPLES = FRAME_SHIFT_MS * SAMPLE_RATE_HZ // 1000

SPEECH_WINDOW_SAMPLES = 512
"""Samples at that rate that one speech probability covers."""

Compression = Literal["none", "avg", "weighted", "softmax", "fixed"]
PositionScheme = Literal["released", "relative"]
Activation = Literal["relu", "gelu"]


class ModelRecord(Declared):
    """A record in a checkpoint's `config.json`."""

    error = ModelFieldError


@dataclasses.dataclass(frozen=True)
class SubsamplerConfig(ModelRecord):
    """Convolutions of stride 2 in front of the encoder; each halves the frame rate."""

    layers: int = parameter(2, minimum=1, maximum=4)
    kernel_frames: int = parameter(5, minimum=1, maximum=31)
    channels: int = parameter(1024, minimum=2, maximum=8192)
    """Output channels of every convolution but the last, before the gated linear unit halves them.

    The last one has twice the encoder's width.
    """


@dataclasses.dataclass(frozen=True)
class FamilyConfig(ModelRecord):
    """Fields that every family's encoder has; each family adds its own."""

    architecture: str
    """The family's row in `earvoice.models.families`."""
    d_model: int = parameter(512, minimum=4, maximum=4096)
    compression: Compression = "avg"

    def check_together(self) -> None:
        # Positions are pairs of sine and cosine.
        if self.d_model % 2:
            raise ParameterError("d_model", self.d_model, "even numbers")

    @property
    def frame_shift_ms(self) -> int:
        """Milliseconds between two encoder frames, before compression."""
        raise NotImplementedError

    @property
    def longest_utterance_ms(self) -> int:
        """Longest utterance that it can encode to the end; 0 where there is no such limit."""
        return 0

    @property
    def description(self) -> str:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: str = "") -> Self:
        """See `Declared.from_dict`; `architecture` says which family's fields there are."""
        if cls is not FamilyConfig or not isinstance(values, Mapping):
            return super().from_dict(values, path)
        architecture = values.get("architecture", "conformer")
        if not isinstance(architecture, str) or architecture not in FAMILIES:
            raise cls.error(f"{path}architecture", architecture, ", ".join(FAMILIES))
        config = family_of(architecture).config.from_dict(values, path)
        assert isinstance(config, cls)  # noqa: S101 - cls is the base of them all
        return config


@dataclasses.dataclass(frozen=True)
class EncoderConfig(FamilyConfig):
    """An encoder of the papers, Conformer or Transformer; `ctc_layer` counts from 1."""

    architecture: Literal["conformer", "transformer"] = "conformer"
    heads: int = parameter(8, minimum=1, maximum=64)
    ffn_multiplier: int = parameter(4, minimum=1, maximum=16)
    layers: int = parameter(12, minimum=1, maximum=96)
    ctc_layer: int = parameter(8, minimum=1, maximum=96)
    depthwise_kernel: int = parameter(31, minimum=1, maximum=127)
    positions: PositionScheme = "relative"
    subsampler: SubsamplerConfig = dataclasses.field(default_factory=SubsamplerConfig)
    causal: bool = False
    """A Transformer's states see no later sound (Han 2020), so more sound does not change them."""

    def check_together(self) -> None:
        super().check_together()
        _check_heads("heads", self.heads, self.d_model)
        if self.causal and self.architecture == "conformer":
            raise ParameterError("causal", self.causal, "false with a Conformer")
        if self.ctc_layer > self.layers:
            raise ParameterError("ctc_layer", self.ctc_layer, f"1 to {self.layers}")
        for name, width in (
            ("depthwise_kernel", self.depthwise_kernel),
            ("subsampler.kernel_frames", self.subsampler.kernel_frames),
        ):
            if width % 2 == 0:
                raise ParameterError(name, width, "odd numbers")
        if self.subsampler.channels % 2:
            raise ParameterError("subsampler.channels", self.subsampler.channels, "even numbers")

    @property
    def frame_shift_ms(self) -> int:
        return FRAME_SHIFT_MS << self.subsampler.layers

    @property
    def description(self) -> str:
        return (
            f"{self.architecture}, {self.layers} layers, {self.d_model} wide, "
            f"{self.heads} heads, CTC after layer {self.ctc_layer}, {self.compression}, "
            f"{self.frame_shift_ms} ms a frame, {self.positions} positions"
            f"{', one way' if self.causal else ''}"
        )


@dataclasses.dataclass(frozen=True)
class DecoderConfig(ModelRecord):
    """The autoregressive decoder, a Transformer or LSTMs; as wide as the encoder.

    With learned positions the embeddings are not scaled, as in Whisper.
    """

    architecture: Literal["transformer", "lstm"] = "transformer"
    layers: int = parameter(6, minimum=1, maximum=96)
    """Layers that attend to the source."""
    predictor_layers: int = parameter(0, minimum=0, maximum=96)
    """In a transducer (Liu 2021) this many layers attend to the text alone, then `layers`, the
    joiner, to the source alone; the end of sentence is its blank. 0: every layer attends to both.
    """
    heads: int = parameter(8, minimum=1, maximum=64)
    ffn_width: int = parameter(2048, minimum=1, maximum=65536)
    """Width of a Transformer's feed-forward; for LSTMs, the cells of each layer."""
    tied_embeddings: bool = False
    activation: Activation = "relu"
    positions: Literal["sinusoid", "learned"] = "sinusoid"
    max_tokens: int = parameter(448, minimum=16, maximum=65536)
    """Longest hypothesis with learned positions, start and language token included."""
    key_bias: bool = True
    own_layers: tuple[int, ...] = ()
    """Tokens of the languages that have layers and a final LayerNorm of their own."""
    pivot_layers: int = parameter(0, minimum=0, maximum=96)
    """The source language, the one with layers of its own, is written from the states; the others
    translate that text (Dalmia 2021), which this many bidirectional layers read. 0: every language
    reads the states."""
    least_empty_probability: float = parameter(0.0, minimum=0, maximum=1)
    """An empty hypothesis less likely than this is not chosen: something is written instead."""
    shortlist: bool = False
    """Whether texts use only the pieces of their shortlist, stored with the weights: one for the
    source language, and one for translations, which also use the pieces of the text that they
    translate. For these the other rows of the output projection are not computed."""

    def check_together(self) -> None:
        if self.architecture == "lstm" and self.predictor_layers:
            raise ParameterError("predictor_layers", self.predictor_layers, "0 with LSTMs")
        if self.own_layers and (self.architecture == "lstm" or self.predictor_layers):
            allowed = "none with LSTMs and in a transducer"
            raise ParameterError("own_layers", self.own_layers, allowed)
        if self.least_empty_probability and self.is_transducer:
            allowed = "0 in a transducer, whose end means that it waits"
            raise ParameterError("least_empty_probability", self.least_empty_probability, allowed)
        if self.pivot_layers and len(self.own_layers) != 1:
            raise ParameterError("pivot_layers", self.pivot_layers, "0 without one of own_layers")
        if self.shortlist and not (self.pivot_layers and self.tied_embeddings):
            allowed = "false without pivot_layers and tied_embeddings"
            raise ParameterError("shortlist", self.shortlist, allowed)

    @property
    def is_transducer(self) -> bool:
        return self.predictor_layers > 0

    @property
    def max_new_tokens(self) -> int | None:
        """Most tokens after start and language; None for no limit."""
        return self.max_tokens - 2 if self.positions == "learned" else None


@dataclasses.dataclass(frozen=True)
class TargetLanguage(ModelRecord):
    """A language this model writes; `tag` is the first forced piece, empty where none is needed."""

    code: str
    tag: str = ""
    policy: str = ""
    """The policy for this language, as `parse_policy` reads it; empty takes the model's."""

    def check_together(self) -> None:
        # A policy can also be a file of code: a checkpoint may only name one of ours.
        if not self.policy:
            return
        name = split_policy_text(self.policy)[0].replace("-", "_")
        if name not in POLICIES:
            raise ParameterError("policy", self.policy, ", ".join(POLICIES))
        given = parse_policy(self.policy).to_dict()
        for required in POLICIES[name].required_parameters():
            if given[required] is None:
                raise ParameterError("policy", self.policy, f"{name}:{required}=VALUE")


@dataclasses.dataclass(frozen=True)
class PolicyDefaults(ModelRecord):
    """Decision-policy parameters calibrated for one model; a stream may override each."""

    policy: str = "edatt"
    attention_layer: int = parameter(4, minimum=1, maximum=96)
    """Decoder layer whose cross-attention is evidence, counted from 1."""
    alpha: float = same_parameter(Edatt, "alpha", 0.2)
    lambda_states: int = same_parameter(Edatt, "lambda_states", 2)
    frames: int = same_parameter(AlignAtt, "frames", 4)
    """AlignAtt's `f`, in encoder states."""
    segment_ms: int = parameter(800, minimum=SEGMENT_MS[0], maximum=SEGMENT_MS[1])
    attention_heads: tuple[int, ...] = ()
    """Heads of that layer whose mean is evidence, counted from 1; empty takes all."""
    alphas: tuple[float, ...] = ()
    """EDAtt's thresholds that trade quality for speed best, fast ones first; empty: not known."""
    frame_distances: tuple[int, ...] = ()
    """The same for AlignAtt's `f`."""

    def check_together(self) -> None:
        if self.policy not in POLICIES or POLICIES[self.policy].required_parameters():
            ready = [name for name, one in POLICIES.items() if not one.required_parameters()]
            raise ParameterError("policy", self.policy, ", ".join(ready))


@dataclasses.dataclass(frozen=True)
class Confidence(ModelRecord):
    """How a word's confidence follows from its probability; without calibration they are equal.

    The logistic function of `unsure_scale` ln(p) - `sure_scale` ln(1 - p) + `offset` (Kull 2017).
    """

    unsure_scale: float = parameter(1.0, minimum=0.0, maximum=100.0)
    sure_scale: float = parameter(1.0, minimum=0.0, maximum=100.0)
    offset: float = parameter(0.0, minimum=-100.0, maximum=100.0)
    least: float = parameter(0.0, minimum=0.0, maximum=1.0)
    """An utterance whose words' mean confidence is below this counts as not understood."""

    def check_together(self) -> None:
        if not self.unsure_scale + self.sure_scale:
            raise ParameterError("sure_scale", self.sure_scale, "more than 0, as unsure_scale is 0")


@dataclasses.dataclass(frozen=True)
class ModelConfig(ModelRecord):
    """Everything but the weights: what `config.json` in a checkpoint holds."""

    name: str
    version: str
    source_language: str
    target_languages: tuple[TargetLanguage, ...]
    source_pieces: int = parameter(minimum=1, maximum=1_000_000)
    """Source vocabulary with specials, blank not counted (the CTC head adds it as the last)."""
    target_pieces: int = parameter(minimum=5, maximum=1_000_000)
    mel_bins: int = parameter(80, minimum=80, maximum=80)
    sample_rate_hz: int = parameter(SAMPLE_RATE_HZ, minimum=SAMPLE_RATE_HZ, maximum=SAMPLE_RATE_HZ)
    encoder: FamilyConfig = dataclasses.field(default_factory=EncoderConfig)
    decoder: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    policy_defaults: PolicyDefaults = dataclasses.field(default_factory=PolicyDefaults)
    confidence: Confidence = dataclasses.field(default_factory=Confidence)

    def check_together(self) -> None:
        _check_heads("decoder.heads", self.decoder.heads, self.encoder.d_model)
        if not all(0 <= token < self.target_pieces for token in self.decoder.own_layers):
            allowed = f"0 to {self.target_pieces - 1}"
            raise ParameterError("decoder.own_layers", self.decoder.own_layers, allowed)
        layer, layers = self.policy_defaults.attention_layer, self.decoder.layers
        if layer > layers:
            raise ParameterError("policy_defaults.attention_layer", layer, f"1 to {layers}")
        heads = self.policy_defaults.attention_heads
        if not all(1 <= head <= self.decoder.heads for head in heads):
            allowed = f"1 to {self.decoder.heads}"
            raise ParameterError("policy_defaults.attention_heads", heads, allowed)
        if not self.target_languages:
            raise ParameterError("target_languages", (), "at least one language")
        codes = [language.code for language in self.target_languages]
        if len({*codes}) < len(codes):
            raise ParameterError("target_languages", codes, "each code once")
        for own in filter(None, (language.policy for language in self.target_languages)):
            layer_read, heads_read = parse_policy(own).attention
            if not 1 <= (layer_read or 1) <= layers:
                raise ParameterError("target_languages.policy", own, f"layers from 1 to {layers}")
            if not all(1 <= head <= self.decoder.heads for head in heads_read):
                allowed = f"heads from 1 to {self.decoder.heads}"
                raise ParameterError("target_languages.policy", own, allowed)

    @property
    def papers_encoder(self) -> EncoderConfig:
        """The encoder's configuration, for code that works only on the papers' networks."""
        if not isinstance(self.encoder, EncoderConfig):
            architecture = self.encoder.architecture
            message = f"encoder is {architecture!r}; allowed here: 'conformer', 'transformer'"
            raise ModelError(message)
        return self.encoder

    @property
    def blank(self) -> int:
        """The CTC blank's index: the last output of the CTC head."""
        return self.source_pieces


def _check_heads(name: str, heads: int, d_model: int) -> None:
    if d_model % heads:
        raise ParameterError(name, heads, f"divisors of d_model, {d_model}")


def _published(name: str, encoder: EncoderConfig, decoder: DecoderConfig) -> ModelConfig:
    return ModelConfig(
        name=name,
        version="1",
        source_language="en",
        target_languages=(TargetLanguage("de"),),
        source_pieces=5000,
        target_pieces=8000,
        encoder=encoder,
        decoder=decoder,
        policy_defaults=PolicyDefaults(attention_layer=4),
    )


PRESETS: Mapping[str, ModelConfig] = MappingProxyType(
    {
        # Papi 2023 (EDAtt) §4: 12 Conformer and 6 Transformer layers, 512 wide.
        "paper": _published("paper", EncoderConfig(positions="released"), DecoderConfig()),
        # Papi 2022, appendix A.1: half as wide, 4 heads in the encoder and 8 in the decoder.
        "papi-2022-conformer": _published(
            "papi-2022-conformer",
            EncoderConfig(d_model=256, heads=4, positions="released"),
            DecoderConfig(),
        ),
        # Papi 2022, appendix A.1: the same with a Transformer encoder; with its CTC head.
        "papi-2022-transformer": _published(
            "papi-2022-transformer",
            EncoderConfig(architecture="transformer", d_model=256, heads=4, ffn_multiplier=8),
            DecoderConfig(),
        ),
        # For one core and live speech: 8-fold time reduction, positions that ignore the length.
        "small": ModelConfig(
            name="small",
            version="1",
            source_language="en",
            target_languages=(TargetLanguage("de"),),
            source_pieces=1000,
            target_pieces=2000,
            encoder=EncoderConfig(
                d_model=160,
                heads=4,
                layers=7,
                ctc_layer=5,
                depthwise_kernel=15,
                subsampler=SubsamplerConfig(layers=3, kernel_frames=5, channels=256),
            ),
            decoder=DecoderConfig(layers=3, heads=4, ffn_width=640, tied_embeddings=True),
            policy_defaults=PolicyDefaults(attention_layer=2),
        ),
    }
)


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise ModelError(f"preset is {name!r}; allowed: {', '.join(PRESETS)}")
    return PRESETS[name]
