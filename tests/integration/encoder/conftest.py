from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from earvoice.encoder.model import EncoderModel, load_model
from earvoice.encoder.settings import EncoderSettings
from earvoice.models.config import PolicyDefaults
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.whisper import CtcBranchConfig, WhisperConfig
from tests.integration.encoder.running_encoder import (
    MAX_UTTERANCE_MS,
    SESSION_LIMIT,
    RunningEncoder,
    start_encoder,
)
from tests.tiny_model import random_network, save_network, tiny_config, train_sentencepiece

TEXT = ("the house and the garden", "a small cat sees the old tree", "we hear words and speak")


@pytest.fixture(scope="session")
def checkpoint_path(tmp_path_factory):
    """A random model of 3 layers: its states depend on every frame, its words mean nothing."""
    pieces = train_sentencepiece(TEXT, 40)
    config = replace(
        tiny_config(pieces, pieces), version="7", policy_defaults=PolicyDefaults(attention_layer=2)
    )
    torch.manual_seed(3)
    network = SpeechTranslationModel(config)
    # The blank is made likely, as in a trained model: without it no two frames agree.
    with torch.no_grad():
        network.encoder.ctc_fc.weight.mul_(3)
        network.encoder.ctc_fc.bias[config.blank] = 3.0
    path = tmp_path_factory.mktemp("model") / "tiny"
    normalisation = FeatureNormalisation(torch.full((80,), 8.0), torch.full((80,), 4.0))
    save_network(path, network, pieces, pieces, normalisation=normalisation)
    return path


@pytest.fixture(scope="session")
def whisper_model(tmp_path_factory) -> EncoderModel:
    """A random model with Whisper's features and encoder."""
    pieces = train_sentencepiece(TEXT, size=40)
    branch = CtcBranchConfig(width=16, heads=2, ffn_width=32, layers=1)
    encoder = WhisperConfig(d_model=16, heads=2, ffn_width=32, layers=2, ctc=branch)
    config = dataclasses.replace(tiny_config(pieces, pieces), encoder=encoder)
    path = tmp_path_factory.mktemp("model") / "whisper"
    save_network(path, random_network(config), pieces, pieces)
    return load_model(EncoderSettings(model_path=path, device="cpu"))


@pytest.fixture(scope="session")
def settings(checkpoint_path):
    return EncoderSettings(
        port=0,
        model_path=checkpoint_path,
        session_limit=SESSION_LIMIT,
        max_utterance_ms=MAX_UTTERANCE_MS,
        device="cpu",
    )


@pytest.fixture(scope="session")
def model(settings) -> EncoderModel:
    return load_model(settings)


@pytest.fixture
async def encoder(settings, model) -> AsyncIterator[RunningEncoder]:
    running, stop = await start_encoder(settings, model)
    yield running
    await stop()


@pytest.fixture(scope="session")
def speech() -> np.ndarray:
    """Four seconds at 16 kHz that sound a little like syllables, [n] int16."""
    rng = np.random.default_rng(5)
    time_s = np.arange(4 * 16000) / 16000
    voiced = sum(np.sin(2 * np.pi * 140 * k * time_s) / k for k in range(1, 20))
    envelope = np.clip(np.sin(2 * np.pi * 3 * time_s), 0, None) * (np.abs(time_s - 2) > 0.4)
    sound = voiced * envelope * 5000 + rng.standard_normal(len(time_s)) * 60
    return sound.clip(-32768, 32767).astype("<i2")
