"""The shape of the shipped model, and of the larger one that grows from it."""

from __future__ import annotations

import dataclasses

from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)

TARGET_TAGS = ("<de>", "<es>")
"""Pieces by which the grown model is asked for German or Spanish."""


def first_model(source_pieces: int, target_pieces: int) -> ModelConfig:
    """Return the configuration of ``earvoice-en-de``: about 5.2 million parameters.

    One encoder state before compression is 80 ms. Positions are relative and do not depend on
    the length, so that a longer prefix changes what was heard as little as possible.
    """
    return ModelConfig(
        name="earvoice-en-de",
        version="1",
        source_language="en",
        target_languages=(TargetLanguage("de"),),
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        encoder=EncoderConfig(
            architecture="conformer",
            d_model=144,
            heads=4,
            ffn_multiplier=4,
            layers=7,
            ctc_layer=5,
            compression="avg",
            depthwise_kernel=15,
            positions="relative",
            subsampler=SubsamplerConfig(layers=3, kernel_frames=5, channels=192),
        ),
        decoder=DecoderConfig(layers=3, heads=4, ffn_width=512, tied_embeddings=True),
        policy_defaults=PolicyDefaults(
            policy="edatt", attention_layer=3, alpha=0.3, lambda_states=2, segment_ms=800
        ),
    )


def grown_model(source_pieces: int, target_pieces: int) -> ModelConfig:
    """Return the configuration of ``earvoice-en-x-small``: about 6.8 million parameters."""
    first = first_model(source_pieces, target_pieces)
    return dataclasses.replace(
        first,
        name="earvoice-en-x-small",
        version="7",
        target_languages=tuple(TargetLanguage(tag[1:-1], tag) for tag in TARGET_TAGS),
        encoder=dataclasses.replace(first.papers_encoder, layers=9, ctc_layer=7),
        decoder=dataclasses.replace(first.decoder, layers=4),
    )
