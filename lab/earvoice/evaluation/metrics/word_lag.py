"""How long after what it translates a word is released."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from earvoice.policy.lag import word_lag_ms


def mean_word_lag(times_ms: Sequence[float], source_ends_ms: Sequence[float]) -> float:
    """Return the mean lag of an instance's words in ms; at least one word."""
    return fmean(map(word_lag_ms, times_ms, source_ends_ms))


def computational_overhead(times_ms: Sequence[float], delays_ms: Sequence[float]) -> float:
    """Return the mean of e - d in ms: what computation adds to a unit's time."""
    return fmean(e - d for e, d in zip(times_ms, delays_ms, strict=True))
