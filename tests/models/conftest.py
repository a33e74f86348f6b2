"""Small models, vocabularies and reference data for the tests of the networks."""

import dataclasses
from pathlib import Path

import pytest

from earvoice.models.config import ModelConfig
from tests.tiny_model import SOURCE_TEXT, TARGET_TEXT, tiny_config, train_sentencepiece

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def golden() -> Path:
    return REPOSITORY / "tests" / "data" / "golden"


@pytest.fixture(scope="session")
def source_model() -> bytes:
    return train_sentencepiece(SOURCE_TEXT)


@pytest.fixture(scope="session")
def target_model() -> bytes:
    return train_sentencepiece(TARGET_TEXT)


@pytest.fixture(scope="session")
def config(source_model: bytes, target_model: bytes) -> ModelConfig:
    """A network that computes in milliseconds."""
    return tiny_config(source_model, target_model)


@pytest.fixture(scope="session")
def released_config(config: ModelConfig) -> ModelConfig:
    """The same with the papers' relative shift, which looks at each utterance's length."""
    encoder = dataclasses.replace(config.encoder, positions="released")
    return dataclasses.replace(config, encoder=encoder)
