"""How much computation an amount of audio costs."""

from __future__ import annotations

from collections.abc import Sequence


def real_time_factor(computations_ms: Sequence[float], source_lengths_ms: Sequence[float]) -> float:
    """Return total computation / total audio, the usual meaning.

    Above 1 the machine is slower than the speaker. SimulEval's metric of the same name is
    d_n / T, which has no computation in it.
    """
    return sum(computations_ms) / sum(source_lengths_ms)
