"""Model sizes with a name: those of the papers, and the one we train ourselves."""

from collections.abc import Mapping
from types import MappingProxyType

from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.errors import ModelConfigError


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
    """The configuration with this name.

    Raises:
        ModelConfigError: there is none.
    """
    if name not in PRESETS:
        message = f"preset is {name!r}; allowed: {', '.join(PRESETS)}"
        raise ModelConfigError(message)
    return PRESETS[name]
