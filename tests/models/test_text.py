"""A text source's encoder: exact places of words, one way or both, and served like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.decoder.loading import load_decoder
from earvoice.decoder.settings import DecoderSettings
from earvoice.encoder.model import TextModel, load_model
from earvoice.encoder.settings import EncoderSettings
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import DecoderConfig, ModelConfig
from earvoice.models.errors import ModelError
from earvoice.models.text import TextConfig, source_pieces
from earvoice.models.translation import SpeechTranslationModel, network_without_storage
from earvoice.models.vocabulary import EOS, Vocabulary
from tests.tiny_model import random_network, save_network

pytestmark = pytest.mark.torch

WORDS = ("the", "small", "cat", "sees", "the", "house")


@pytest.fixture(scope="module", params=[True, False], ids=["one way", "both ways"])
def text_config(config: ModelConfig, request: pytest.FixtureRequest) -> ModelConfig:
    encoder = TextConfig(d_model=32, layers=2, heads=4, ffn_width=48, causal=request.param)
    return replace(config, encoder=encoder)


@pytest.fixture(scope="module")
def network(text_config: ModelConfig) -> SpeechTranslationModel:
    return random_network(text_config)


def test_the_papers_layers_are_the_defaults(config: ModelConfig) -> None:
    """Eight read, six write; an encoder of one way."""
    paper = replace(config, encoder=TextConfig(), decoder=DecoderConfig())
    names = network_without_storage(paper).state_dict()
    assert "encoder.layers.7.fc1.weight" in names
    assert "encoder.layers.8.fc1.weight" not in names
    assert "decoder.layers.5.fc1.weight" in names
    assert TextConfig().causal


def test_words_are_cut_one_by_one(source_model: bytes) -> None:
    """Each piece knows how many words have come with it; no later word changes it."""
    vocabulary = Vocabulary(source_model)
    pieces, places = source_pieces(WORDS, vocabulary, ended=True)
    spelt = [vocabulary.encode(word) for word in WORDS]
    assert pieces == [*(piece for word in spelt for piece in word), EOS]
    assert places == [*(n for n, word in enumerate(spelt, 1) for _ in word), 6]
    shorter, _ = source_pieces(WORDS[:3], vocabulary, ended=False)
    assert pieces[: len(shorter)] == shorter
    assert source_pieces((), vocabulary, ended=True) == ([], [])


def test_a_padded_batch_equals_each_alone(network: SpeechTranslationModel) -> None:
    """Nothing is seen of the padding, and it has no label."""
    lengths = [3, 6, 1]
    pieces = torch.randint(4, 20, (3, 6, 1), generator=torch.Generator().manual_seed(1))
    batch = network.encoder(pieces, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone = network.encoder.encode(pieces[row, :length])
        torch.testing.assert_close(batch.states[row, :length], alone.states)
        assert alone.labels.tolist() == pieces[row, :length, 0].tolist()
        assert batch.labels[row].tolist() == [*alone.labels.tolist(), *[-1] * (6 - length)]


def test_one_way_a_state_never_changes(network: SpeechTranslationModel) -> None:
    """Later words change the states before them only where the encoder looks both ways."""
    pieces = torch.randint(4, 20, (6, 1), generator=torch.Generator().manual_seed(2))
    early, late = network.encoder.encode(pieces[:4]).states, network.encoder.encode(pieces).states
    same = torch.allclose(early, late[:4], atol=1e-5)
    assert isinstance(network.config.encoder, TextConfig)
    assert same == network.config.encoder.causal


def test_it_is_served(
    tmp_path: Path, network: SpeechTranslationModel, source_model: bytes, target_model: bytes
) -> None:
    """The encoder service takes words, the decoder service its states; the model says so."""
    save_network(tmp_path, network, source_model, target_model)
    served = load_model(EncoderSettings(model_path=tmp_path))
    assert isinstance(served, TextModel)
    assert served.description.reads_words
    states, placed = served.encode_words(WORDS, ended=True)
    pieces, places = source_pieces(WORDS, Vocabulary(source_model), ended=True)
    assert list(placed) == places
    found = np.frombuffer(states, np.float32).reshape(-1, served.dimension)
    expected = network.encoder.encode(torch.tensor(pieces)[:, None]).states
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert served.encode_words((), ended=True)[1] == ()
    decoder = load_decoder(DecoderSettings(model_path=tmp_path))
    assert decoder.model.description == served.description


def test_it_does_not_hear(
    tmp_path: Path, network: SpeechTranslationModel, source_model: bytes, target_model: bytes
) -> None:
    """Whoever asks for features is told why there are none."""
    save_network(tmp_path, network, source_model, target_model)
    with pytest.raises(ModelError, match="reads words"):
        load_checkpoint(tmp_path).open_features()
    with pytest.raises(ModelError, match="heads = 3"):
        TextConfig.from_dict({"architecture": "text", "d_model": 32, "heads": 3})
