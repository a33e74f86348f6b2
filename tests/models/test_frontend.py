"""Features equal Kaldi's, however the sound is cut."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.models.errors import CheckpointError, ModelError
from earvoice.models.frontend import (
    FeatureNormalisation,
    FeatureStream,
    Filterbank,
    feature_stream,
    frame_count,
)
from tests.models.filterbank_tolerance import assert_filterbank

pytestmark = pytest.mark.torch

SPEECH_LIKE = np.random.default_rng(1).standard_normal(12_000).astype(np.float32) * 0.1


def _stream() -> FeatureStream:
    return feature_stream(Filterbank(), FeatureNormalisation.identity())


def test_filterbank_of_the_papers(golden: Path) -> None:
    """Raw and normalised features of real samples agree with the reference."""
    with np.load(golden / "filterbank.npz") as reference:
        samples = torch.from_numpy(reference["samples"].astype(np.float32))
        normalise = FeatureNormalisation(
            torch.from_numpy(reference["mean"]), torch.from_numpy(reference["deviation"])
        )
        raw = Filterbank()(samples)
        expected = torch.from_numpy(reference["raw"])
        assert_filterbank(raw, expected)
        normalised = torch.from_numpy(reference["normalised"])
        torch.testing.assert_close(normalise(expected), normalised, atol=4e-6, rtol=0)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, len(SPEECH_LIKE)), max_size=40))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    """Sound in pieces of any size gives the frames of the whole, to 2e-6."""
    whole = _stream()(SPEECH_LIKE)
    stream = _stream()
    pieces = [stream(piece) for piece in np.split(SPEECH_LIKE, sorted(cuts))]
    torch.testing.assert_close(torch.cat(pieces), whole, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2)])
def test_a_short_tail_waits(samples: int, frames: int) -> None:
    """There are as many frames as whole windows, and the count is known beforehand."""
    assert _stream()(SPEECH_LIKE[:samples]).shape == (frames, 80)
    assert frame_count(samples) == frames


@pytest.mark.parametrize(
    "samples",
    [np.zeros(800), np.zeros((2, 800), np.float32), np.array([0, np.nan], np.float32)],
    ids=["float64", "two axes", "not finite"],
)
def test_bad_sound_is_refused(samples: np.ndarray) -> None:
    """Another dtype, shape or a number that is not finite is named and refused."""
    with pytest.raises(ModelError, match="samples"):
        _stream()(samples)


@pytest.mark.parametrize("deviation", [torch.zeros(80), torch.ones(79), torch.full((80,), np.nan)])
def test_impossible_statistics_are_refused(deviation: torch.Tensor) -> None:
    """Statistics that cannot normalise are refused when they are read."""
    with pytest.raises(CheckpointError, match="deviation"):
        FeatureNormalisation(torch.zeros(80), deviation)
