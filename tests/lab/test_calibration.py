"""Lagging of simulated simultaneous use."""

import pytest

from earvoice.training.calibration import laal_ms

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("delays_ms", "reference_words", "expected_ms"),
    [
        ((1000, 1000, 2000, 3000, 3500, 3500), 5, 933.333),
        ((1000, 2000, 3500), 5, 1466.667),
        ((3500, 3500), 2, 3500.0),
    ],
)
def test_laal(delays_ms: tuple[float, ...], reference_words: int, expected_ms: float) -> None:
    """The published examples of length-adaptive average lagging come out."""
    assert laal_ms(delays_ms, 3500.0, reference_words) == pytest.approx(expected_ms, abs=1e-3)
