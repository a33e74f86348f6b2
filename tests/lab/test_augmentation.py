"""Variation of log-mel features."""

import numpy as np
import pytest

from earvoice.training.augmentation import (
    MEL_BINS,
    NoiseBank,
    change_tempo,
    mask,
    vary_channel,
    vary_speaker,
    warp_vocal_tract,
)
from earvoice.training.recipe import AugmentationRecipe


@pytest.fixture
def features() -> np.ndarray:
    """Two seconds of something like speech, [200, 80] float32."""
    return np.random.default_rng(0).normal(10.0, 3.0, (200, MEL_BINS)).astype(np.float32)


def test_factor_one_changes_nothing(features: np.ndarray) -> None:
    """A speaker of the same size at the same pace is the same speaker."""
    np.testing.assert_allclose(warp_vocal_tract(features, 1.0), features, atol=1e-4)
    np.testing.assert_allclose(change_tempo(features, 1.0), features, atol=1e-4)


def test_warping_moves_a_resonance_up() -> None:
    """A factor above one moves a peak to higher mel bins and keeps the shape."""
    peak = np.zeros((3, MEL_BINS), np.float32)
    peak[:, 40] = 10.0
    moved = warp_vocal_tract(peak, 1.15)
    assert moved.shape == peak.shape
    assert (moved.argmax(axis=1) > 40).all()


def test_tempo_changes_the_length(features: np.ndarray) -> None:
    """Twice as fast is half as long."""
    assert len(change_tempo(features, 2.0)) == 100
    assert len(change_tempo(features[:1], 2.0)) >= 1


def test_masks_keep_the_shape_and_most_of_the_sound(features: np.ndarray) -> None:
    """SpecAugment blanks out less than half and leaves its input alone."""
    before = features.copy()
    masked = mask(features, AugmentationRecipe(), np.random.default_rng(2))
    np.testing.assert_array_equal(features, before)
    assert 0.0 < np.mean(masked != features) < 0.5


def test_variation_is_seeded_and_finite(features: np.ndarray) -> None:
    """The same seed gives the same sound; digital silence stays finite."""
    recipe = AugmentationRecipe()
    voices = [features.astype(np.float16)]
    bank = NoiseBank(features - features.mean(), voices)

    def heard(rows: np.ndarray, seed: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        return vary_channel(vary_speaker(rows, recipe, generator), bank, recipe, generator)

    np.testing.assert_array_equal(heard(features, 3), heard(features, 3))
    silence = np.full((50, MEL_BINS), -15.9, np.float32)
    for seed in range(30):
        assert np.isfinite(heard(silence, seed)).all()
