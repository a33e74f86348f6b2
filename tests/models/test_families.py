"""A family of encoders is one module and one row: a newcomer's is served like any other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.decoder.loading import load_decoder
from earvoice.decoder.settings import DecoderSettings
from earvoice.encoder.model import load_model
from earvoice.encoder.settings import EncoderSettings
from earvoice.models.config import ModelConfig
from earvoice.models.errors import ModelError
from earvoice.models.families import FAMILIES
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.whisper import CtcBranchConfig, WhisperConfig
from tests.models.toy_family import ToyConfig
from tests.tiny_model import random_network, save_network

pytestmark = pytest.mark.torch

SOUND = (np.random.default_rng(0).standard_normal(40_000) * 0.1).astype(np.float32)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, config: ModelConfig) -> ModelConfig:
    """The newcomer's row, and a model of it."""
    monkeypatch.setitem(FAMILIES, "toy", "tests.models.toy_family")
    return dataclasses.replace(config, encoder=ToyConfig(d_model=32))


def _whisper(config: ModelConfig) -> ModelConfig:
    encoder = WhisperConfig(
        d_model=32, heads=2, ffn_width=64, layers=2, ctc=CtcBranchConfig(2, 16, 2, 32, 1)
    )
    decoder = dataclasses.replace(
        config.decoder, activation="gelu", positions="learned", max_tokens=64, key_bias=False
    )
    return dataclasses.replace(config, encoder=encoder, decoder=decoder)


def _saved(
    folder: Path, config: ModelConfig, source_model: bytes, target_model: bytes
) -> SpeechTranslationModel:
    network = random_network(config)
    save_network(folder, network, source_model, target_model)
    return network


@pytest.mark.parametrize("family", ["conformer", "toy", "whisper"])
def test_a_family_is_served(
    tmp_path: Path,
    toy: ModelConfig,
    config: ModelConfig,
    source_model: bytes,
    target_model: bytes,
    family: str,
) -> None:
    """Features, states, labels and times out of the encoder service, tokens out of the decoder."""
    chosen = {"conformer": config, "toy": toy, "whisper": _whisper(config)}[family]
    network = _saved(tmp_path, chosen, source_model, target_model)
    served = load_model(EncoderSettings(model_path=tmp_path))
    features = served.open_features()(SOUND)
    assert len(features) == served.feature_frame_count(len(SOUND))
    encoding = served.encode(features)
    expected = network.encoder.encode(torch.from_numpy(features))
    found = np.frombuffer(encoding.states, np.float32).reshape(-1, served.dimension)
    np.testing.assert_allclose(found, expected.states, atol=1e-4)
    assert encoding.labels == tuple(expected.labels.tolist())
    assert sum(encoding.run_lengths) == len(encoding.frame_labels)
    assert served.encoder_frame_ms == chosen.encoder.frame_shift_ms
    assert len(encoding.frame_labels) * served.encoder_frame_ms >= len(features) * 10
    decoder = load_decoder(DecoderSettings(model_path=tmp_path))
    assert decoder.model.dimension == served.dimension
    assert decoder.model.description == served.description
    assert decoder.model.max_tokens == (62 if family == "whisper" else None)


@pytest.mark.parametrize("family", ["conformer", "toy", "whisper"])
@pytest.mark.parametrize("kept", [0, 1, 2, 3, 50])
def test_frames_continue_from_any_other(
    tmp_path: Path,
    toy: ModelConfig,
    config: ModelConfig,
    source_model: bytes,
    target_model: bytes,
    family: str,
    kept: int,
) -> None:
    """With the frames of context that a network asks for, later ones need no sound before them."""
    chosen = {"conformer": config, "toy": toy, "whisper": _whisper(config)}[family]
    _saved(tmp_path, chosen, source_model, target_model)
    served = load_model(EncoderSettings(model_path=tmp_path))
    context = min(kept, served.feature_context_frames)
    later = served.open_features()(SOUND[(kept - context) * 160 :])[context:]
    whole = served.open_features()(SOUND)
    np.testing.assert_allclose(later, whole[kept:], atol=2e-6)


def test_a_family_says_what_it_allows(toy: ModelConfig) -> None:
    """Its own fields are checked like all others, and come back from JSON's values."""
    assert ModelConfig.from_dict(toy.to_dict()) == toy
    assert toy.encoder.description == "toy, 5 frames a state"
    with pytest.raises(ModelError, match=r"encoder\.join_frames = 0 .*1 to 100"):
        ModelConfig.from_dict(
            {**toy.to_dict(), "encoder": {"architecture": "toy", "join_frames": 0}}
        )
    with pytest.raises(ModelError, match="encoder is 'toy'; allowed here: 'conformer'"):
        _ = toy.papers_encoder
