"""The encoder treats a padded batch like single utterances, prepared or not."""

import dataclasses
from functools import lru_cache
from typing import get_args

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from earvoice.models.config import Compression, ModelConfig, PositionScheme
from earvoice.models.errors import ModelError
from earvoice.models.relative_attention import shift_relative
from earvoice.models.translation import SpeechTranslationModel
from tests.tiny_model import (
    SOURCE_TEXT,
    TARGET_TEXT,
    random_network,
    tiny_config,
    train_sentencepiece,
)

pytestmark = pytest.mark.torch

ENCODERS = ("relative", "released", "transformer", "one way")


def _variant(config: ModelConfig, encoder: str) -> ModelConfig:
    """The Conformer with one of its position schemes, or the Transformer."""
    if encoder in ("transformer", "one way"):
        changed = dataclasses.replace(
            config.encoder, architecture="transformer", causal=encoder == "one way"
        )
    else:
        positions: PositionScheme = "released" if encoder == "released" else "relative"
        changed = dataclasses.replace(config.encoder, positions=positions)
    return dataclasses.replace(config, encoder=changed)


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
@pytest.mark.parametrize("lengths", [[90, 33, 171], [90]], ids=["three", "one"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_padded_batch_equals_single(
    config: ModelConfig, encoder: str, lengths: list[int], *, prepared: bool
) -> None:
    """In evaluation, each utterance of a padded batch gets the states it gets alone."""
    network = random_network(_variant(config, encoder))
    utterances = [torch.randn(length, 80) for length in lengths]
    alone = [network.encoder.encode(features) for features in utterances]
    if prepared:
        network.prepare_inference(torch.float32)
    features = torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True)
    with torch.inference_mode():
        batch = network.encoder(features, torch.tensor(lengths))
    for index, output in enumerate(alone):
        count = len(output.states)
        assert int(batch.lengths[index]) == count
        torch.testing.assert_close(batch.states[index, :count], output.states, atol=2e-5, rtol=0)
        assert torch.equal(batch.run_lengths[index, :count], output.run_lengths)


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_one_way_a_state_never_changes(
    config: ModelConfig, encoder: str, *, prepared: bool
) -> None:
    """What is heard later changes the states of earlier frames unless the encoder hears one way."""
    variant = _variant(config, encoder)
    plain = dataclasses.replace(
        variant, encoder=dataclasses.replace(variant.encoder, compression="none")
    )
    network = random_network(plain)
    if prepared:
        network.prepare_inference(torch.float32)
    sound = torch.randn(171, 80)
    early, late = network.encoder.encode(sound[:90]).states, network.encoder.encode(sound).states
    same = torch.allclose(early, late[: len(early)], atol=1e-4)
    assert same == (encoder == "one way")


@lru_cache
def _network(encoder: str, compression: Compression) -> SpeechTranslationModel:
    config = _variant(tiny_config(*_sentencepiece()), encoder)
    changed = dataclasses.replace(config.encoder, compression=compression)
    return random_network(dataclasses.replace(config, encoder=changed), seed=1)


@lru_cache
def _sentencepiece() -> tuple[bytes, bytes]:
    return train_sentencepiece(SOURCE_TEXT), train_sentencepiece(TARGET_TEXT)


@pytest.mark.parametrize("compression", get_args(Compression))
@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 120), min_size=1, max_size=4), seed=st.integers(0, 2**16))
def test_batches_of_any_lengths(
    encoder: str, compression: Compression, lengths: list[int], seed: int
) -> None:
    """For every encoder and compression, company and padding change nothing about an utterance."""
    network = _network(encoder, compression)
    generator = torch.Generator().manual_seed(seed)
    utterances = [torch.randn(length, 80, generator=generator) for length in lengths]
    features = torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True)
    with torch.inference_mode():
        batch = network.encoder(features, torch.tensor(lengths))
        singles = [network.encoder(utterance[None]) for utterance in utterances]
    for index, single in enumerate(singles):
        best = single.ctc_log_probs[0].topk(2).values
        # Two labels closer than rounding may change places, and with them the runs.
        assume(bool((best[:, 0] - best[:, 1] > 1e-4).all()))
        count = int(single.lengths[0])
        assert int(batch.lengths[index]) == count
        states = batch.states[index, :count]
        torch.testing.assert_close(states, single.states[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("frames", [1, 2, 9, 159, 300])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_prepared_equals_plain(config: ModelConfig, encoder: str, frames: int) -> None:
    """Packed, fused and folded layers give the same states for any length, in any order."""
    config = _variant(config, encoder)
    plain, prepared = random_network(config), random_network(config)
    prepared.prepare_inference(torch.float32)
    prepared.encoder.encode(torch.randn(500, 80))
    features = torch.randn(frames, 80)
    expected, output = plain.encoder.encode(features), prepared.encoder.encode(features)
    torch.testing.assert_close(output.states, expected.states, atol=2e-5, rtol=0)
    assert torch.equal(output.frame_labels, expected.frame_labels)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_history_does_not_matter(config: ModelConfig, encoder: str) -> None:
    """What was encoded before changes not one bit, so that any replica gives the same states."""
    config = _variant(config, encoder)
    fresh, used = random_network(config), random_network(config)
    for network in (fresh, used):
        network.prepare_inference(torch.float32)
    for frames in (8 * 300, 17, 8 * 700, 333):
        used.encoder.encode(torch.randn(frames, 80))
    for frames in (1, 90, 8 * 100 + 3):
        features = torch.randn(frames, 80)
        output = used.encoder.encode(features)
        assert torch.equal(output.states, fresh.encoder.encode(features).states)


def test_frames_are_accounted_for(config: ModelConfig) -> None:
    """Run lengths add up to the encoder frames; labels are those of the frames they cover."""
    output = random_network(config).encoder.encode(torch.randn(161, 80))
    frames = (161 + 7) // 8
    assert int(output.run_lengths.sum()) == len(output.frame_labels) == frames
    starts = output.run_lengths.cumsum(0) - output.run_lengths
    assert torch.equal(output.labels, output.frame_labels[starts])


def test_bfloat16_is_near(config: ModelConfig) -> None:
    """With bfloat16 products the states before compression stay near those in float32."""
    encoder = dataclasses.replace(config.encoder, compression="none")
    config = dataclasses.replace(config, encoder=encoder)
    plain, prepared = random_network(config), random_network(config)
    prepared.prepare_inference(torch.bfloat16)
    features = torch.randn(100, 80)
    expected, output = plain.encoder.encode(features), prepared.encoder.encode(features)
    assert output.states.dtype == torch.float32
    torch.testing.assert_close(output.states, expected.states, atol=0.1, rtol=0)


def test_relative_shift_looks_up_distances() -> None:
    """Column j of row i holds the score of distance i - j."""
    frames = 5
    distances = torch.arange(frames - 1, -frames, -1).expand(1, 1, frames, -1)
    index = torch.arange(frames)
    assert torch.equal(shift_relative(distances)[0, 0], index[:, None] - index)


@pytest.mark.parametrize("shape", [(0, 80), (10, 79), (1, 10, 80)])
def test_bad_features_are_refused(config: ModelConfig, shape: tuple[int, ...]) -> None:
    """Features of another shape are named and refused."""
    with pytest.raises(ModelError, match="features have shape"):
        random_network(config).encoder.encode(torch.zeros(shape))
