"""Nguyen 2021's network: shapes, Bahdanau's attention by hand, and decoding token by token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import DecoderConfig, ModelConfig
from earvoice.models.errors import ModelError
from earvoice.models.lstm import LstmConfig, LstmDecoder
from earvoice.models.translation import SpeechTranslationModel, network_without_storage
from tests.tiny_model import random_network, save_network

pytestmark = pytest.mark.torch

TOKENS = [2, 7, 9, 4, 21, 9]
PAPER = DecoderConfig(architecture="lstm", layers=2, heads=1, ffn_width=1024)


@pytest.fixture(scope="module")
def lstm_config(config: ModelConfig) -> ModelConfig:
    return replace(
        config,
        encoder=LstmConfig(d_model=24, channels=4, layers=2, cells=16),
        decoder=replace(PAPER, heads=2, ffn_width=20, tied_embeddings=True),
    )


@pytest.fixture(scope="module")
def network(lstm_config: ModelConfig) -> SpeechTranslationModel:
    return random_network(lstm_config)


def test_the_papers_sizes_are_the_defaults(config: ModelConfig) -> None:
    """Five bidirectional layers of 1,024 over D/4 bins of each channel; two of 1,024 write."""
    network = network_without_storage(replace(config, encoder=LstmConfig(), decoder=PAPER))
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert shapes["encoder.lstm.weight_ih_l0"] == (4 * 1024, 128 * 80 // 4)
    assert shapes["encoder.lstm.weight_ih_l4_reverse"] == (4 * 1024, 2 * 1024)
    assert "encoder.lstm.weight_ih_l5" not in shapes
    assert shapes["decoder.layers.1.weight_hh"] == (4 * 1024, 1024)
    assert "decoder.layers.2.weight_hh" not in shapes


@pytest.mark.parametrize(("frames", "states"), [(1, 1), (4, 1), (5, 2), (8, 2), (13, 4)])
def test_time_is_quartered(network: SpeechTranslationModel, frames: int, states: int) -> None:
    """Rounded up at each pooling; every state has a label."""
    output = network.encoder.encode(torch.randn(frames, 80))
    assert output.states.shape == (states, 24)
    assert output.frame_labels.shape == (states,)


def test_a_padded_batch_equals_each_alone(network: SpeechTranslationModel) -> None:
    """Convolutions, poolings and both directions see nothing of the padding."""
    lengths = [13, 30, 7]
    features = [torch.randn(n, 80, generator=torch.Generator().manual_seed(n)) for n in lengths]
    padded = torch.nn.utils.rnn.pad_sequence(features, batch_first=True)
    with torch.inference_mode():
        batch = network.encoder(padded, torch.tensor(lengths))
    for row, own in enumerate(features):
        alone = network.encoder.encode(own).states
        count = int(batch.lengths[row])
        assert count == len(alone)
        torch.testing.assert_close(batch.states[row, :count], alone, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_attention_is_bahdanaus(network: SpeechTranslationModel) -> None:
    """Softmax of v tanh(W h + b + U z), z the first layer's state before the token."""
    decoder = network.decoder
    assert isinstance(decoder, LstmDecoder)
    states = torch.randn(5, 24, generator=torch.Generator().manual_seed(1))
    cache = decoder.open_cache(states)
    decoder.prefill(TOKENS[:2], cache, 1)
    before = cache.after[-1][0][0][0]
    _, attention = decoder.prefill(TOKENS[2:3], cache, 1)
    weights = dict(decoder.named_parameters())
    keys = states @ weights["attention_key.weight"].T + weights["attention_key.bias"]
    energy = (keys + weights["attention_query.weight"] @ before).tanh()
    expected = (energy @ weights["attention_score.weight"][0]).softmax(0)
    torch.testing.assert_close(attention[0], expected, atol=1e-6, rtol=0)


def test_token_by_token_equals_teacher_forcing(network: SpeechTranslationModel) -> None:
    """Also after a rejected draft, and beside a shorter source in a batch."""
    decoder = network.decoder
    assert isinstance(decoder, LstmDecoder)
    states = torch.randn(2, 9, 24, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        forced = decoder(torch.tensor([TOKENS, TOKENS]), states, torch.tensor([9, 4]))
    for row, count in enumerate((9, 4)):
        cache = decoder.open_cache(states[row, :count])
        first, _ = decoder.prefill(TOKENS[:3], cache, 1)
        decoder.prefill([5, 6], cache, 1)
        cache.truncate(3)
        rest, attention = decoder.prefill(TOKENS[3:], cache, 1, first_logits=1, first_attention=2)
        torch.testing.assert_close(torch.cat((first, rest)), forced[row, [0, 1, 2, 4, 5]])
        assert attention.shape == (1, count)


def test_a_checkpoint_comes_back(
    lstm_config: ModelConfig,
    network: SpeechTranslationModel,
    source_model: bytes,
    target_model: bytes,
    tmp_path: Path,
) -> None:
    """Prepared for inference it says the same; it is greedy, and no Transformer."""
    save_network(tmp_path, network, source_model, target_model)
    loaded = load_checkpoint(tmp_path)
    features = torch.randn(21, 80, generator=torch.Generator().manual_seed(3))
    states = network.encoder.encode(features).states
    torch.testing.assert_close(loaded.network.encoder.encode(features).states, states)
    found = []
    for decoder in (network.decoder, loaded.network.decoder):
        assert isinstance(decoder, LstmDecoder)
        found.append(decoder.prefill(TOKENS, decoder.open_cache(states), 1)[0])
    torch.testing.assert_close(*found)
    assert loaded.describe("").greedy_only
    with pytest.raises(ModelError, match="decoder is 'lstm'"):
        _ = loaded.network.transformer_decoder
