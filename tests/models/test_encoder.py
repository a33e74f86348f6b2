"""The encoder treats a padded batch like single utterances, prepared or not."""

import dataclasses

import pytest
import torch

from earvoice.models.config import ModelConfig, PositionScheme
from earvoice.models.errors import ModelInputError
from earvoice.models.relative_attention import shift_relative
from tests.models.tiny_model import random_network

pytestmark = pytest.mark.torch

ENCODERS = ("relative", "released", "transformer")


def _variant(config: ModelConfig, encoder: str) -> ModelConfig:
    """The Conformer with one of its position schemes, or the Transformer."""
    if encoder == "transformer":
        changed = dataclasses.replace(config.encoder, architecture="transformer")
    else:
        positions: PositionScheme = "released" if encoder == "released" else "relative"
        changed = dataclasses.replace(config.encoder, positions=positions)
    return dataclasses.replace(config, encoder=changed)


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_padded_batch_equals_single(config: ModelConfig, encoder: str, *, prepared: bool) -> None:
    """In evaluation, each utterance of a padded batch gets the states it gets alone."""
    network = random_network(_variant(config, encoder))
    lengths = [90, 33, 171]
    utterances = [torch.randn(length, 80) for length in lengths]
    alone = [network.encoder.encode(features) for features in utterances]
    if prepared:
        network.prepare_inference(torch.float32)
    features = torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True)
    with torch.inference_mode():
        batch = network.encoder(features, torch.tensor(lengths)).compressed
    for index, output in enumerate(alone):
        count = len(output.states)
        assert int(batch.lengths[index]) == count
        torch.testing.assert_close(batch.states[index, :count], output.states, atol=2e-5, rtol=0)
        assert torch.equal(batch.run_lengths[index, :count], output.run_lengths)


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
    with pytest.raises(ModelInputError, match="features have shape"):
        random_network(config).encoder.encode(torch.zeros(shape))
