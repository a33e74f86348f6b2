"""How late the words of a live stream are."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tests.e2e.calling import RATE_HERTZ, Outcome


def lag_ms(outcome: Outcome) -> list[float]:
    """Each word's release minus the end of the audio that it is about."""
    return [i.elapsed_ms - i.source_end_sample * 1000 / RATE_HERTZ for i in outcome.items]


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
