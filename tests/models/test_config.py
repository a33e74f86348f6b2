"""Configurations are strict, and survive a round trip through plain dictionaries."""

import dataclasses
import json

import pytest
import torch

from earvoice.models.config import (
    PRESETS,
    EncoderConfig,
    FamilyConfig,
    ModelConfig,
    PolicyDefaults,
    preset,
)
from earvoice.models.errors import ModelError
from earvoice.models.translation import SpeechTranslationModel

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", PRESETS)
def test_round_trip(name: str) -> None:
    """Dictionary and back, through JSON, gives an equal configuration."""
    config = preset(name)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("encoder", "width"), 3, r"encoder\.width is not a parameter; allowed: architecture, "),
        (("encoder", "layers"), "12", r"encoder\.layers = '12' .* a whole number from 1 to 96"),
        (("encoder", "d_model"), 2, r"encoder\.d_model = 2 .*allowed: .* 4 to 4096"),
        (
            ("encoder", "architecture"),
            "rnn",
            r"architecture = 'rnn' .*allowed: conformer, ",
        ),
        (
            ("encoder", "architecture"),
            ["lstm"],
            r"architecture = \['lstm'\] .*allowed: conformer, ",
        ),
        (("encoder", "layers"), 0, r"encoder\.layers = 0 .*allowed: .* 1 to 96"),
        (("encoder", "ctc_layer"), 13, r"encoder\.ctc_layer = 13 .*allowed: 1 to 12"),
        (("encoder", "heads"), 7, r"encoder\.heads = 7 .*allowed: divisors"),
        (("encoder", "compression"), "max", r"encoder\.compression = 'max' .*allowed: none, avg"),
        (("encoder", "depthwise_kernel"), 30, r"depthwise_kernel = 30 .*allowed: odd"),
        (("encoder", "subsampler"), 2, r"encoder\.subsampler = 2 .*allowed: an object"),
        (("encoder", "subsampler", "layers"), 9, r"encoder\.subsampler\.layers = 9 .* 1 to 4"),
        (("decoder", "tied_embeddings"), 1, r"tied_embeddings = 1 .*allowed: true or false"),
        (("decoder", "heads"), 5, r"decoder\.heads = 5 .*allowed: divisors"),
        (("policy_defaults", "alpha"), 1.5, r"policy_defaults\.alpha = 1\.5 .* 0\.0 to 1\.0"),
        (("policy_defaults", "attention_layer"), 7, r"attention_layer = 7 .*allowed: 1 to 6"),
        (
            ("policy_defaults", "attention_heads"),
            [9],
            r"attention_heads = \(9,\) .*allowed: 1 to 8",
        ),
        (("target_languages",), [], r"target_languages = \(\) .*allowed: at least one"),
        (
            ("target_languages",),
            [{"code": "de"}, {"code": "es"}, {"code": "de"}],
            r"target_languages = \['de', 'es', 'de'\] .*allowed: each code once",
        ),
        (("target_languages",), [{"tag": ""}], r"target_languages\.code is missing"),
        (
            ("target_languages",),
            [{"code": "de", "policy": "/tmp/own.py:Own"}],
            r"target_languages\.policy = '/tmp/own.py:Own' .*allowed: edatt, ",
        ),
        (
            ("target_languages",),
            [{"code": "de", "policy": "frame-schedule"}],
            r"allowed: frame_schedule:wait_frames=VALUE",
        ),
        (
            ("target_languages",),
            [{"code": "de", "policy": "local_agreement:n=1"}],
            r"local_agreement:n = .* allowed: .* 2 to 64",
        ),
        (
            ("target_languages",),
            [{"code": "de", "policy": "edatt:attention_layer=7"}],
            r"target_languages\.policy = 'edatt:attention_layer=7' .*allowed: layers from 1 to 6",
        ),
        (
            ("target_languages",),
            [{"code": "de", "policy": "align_att:attention_heads=1+9"}],
            r"target_languages\.policy = .*allowed: heads from 1 to 8",
        ),
        (("sample_rate_hz",), 8000, r"sample_rate_hz = 8000 .*allowed: .* 16000 to 16000"),
        (("name",), None, r"name = None .*allowed: text"),
    ],
)
def test_wrong_fields_are_named(path: tuple[str, ...], value: object, message: str) -> None:
    """Every refusal says field, value and what is allowed."""
    values = preset("paper").to_dict()
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ModelError, match=message):
        ModelConfig.from_dict(values)


@pytest.mark.parametrize(
    ("architecture", "heads"), [("conformer", 3), ("lstm", None), ("text", 3), ("whisper", 3)]
)
def test_no_encoder_has_an_odd_width(architecture: str, heads: int | None) -> None:
    """Positions take pairs of numbers, in the encoder or in the decoder that reads it."""
    encoder = {"architecture": architecture, "d_model": 33}
    if heads is not None:
        encoder["heads"] = heads
    with pytest.raises(ModelError, match=r"^encoder\.d_model = 33 .*allowed: even numbers"):
        FamilyConfig.from_dict(encoder, "encoder.")


def test_missing_fields_are_named() -> None:
    """A field without default that is missing is an error."""
    values = preset("paper").to_dict()
    del values["source_pieces"]
    with pytest.raises(ModelError, match=r"^source_pieces is missing; allowed: .* 1 to"):
        ModelConfig.from_dict(values)


def test_whole_numbers_pass_for_fractions() -> None:
    """JSON writes 0.0 as 0; that is still a fraction."""
    values = {**PolicyDefaults().to_dict(), "alpha": 0}
    assert PolicyDefaults.from_dict(values).alpha == 0.0


def test_configurations_cannot_change() -> None:
    """A configuration is a value."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        EncoderConfig().layers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("paper", 114_894_217),
        ("papi-2022-conformer", 35_640_969),
        ("papi-2022-transformer", 32_357_513),
    ],
)
def test_published_sizes(name: str, parameters: int) -> None:
    """The presets of the papers have exactly the papers' number of parameters."""
    with torch.device("meta"):
        network = SpeechTranslationModel(preset(name))
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_unknown_presets_are_refused() -> None:
    """A misspelt preset names those there are."""
    with pytest.raises(ModelError, match="allowed: paper"):
        preset("papers")
