"""How late words are: the one definition for metrics, traces, reports and the held lag."""

from __future__ import annotations

from collections.abc import Sequence


def word_lag_ms(release_ms: float, source_end_ms: float) -> float:
    """Return a word's lag in ms: how long it is released after the audio that it translates."""
    return release_ms - source_end_ms


def laal_star_ms(times_ms: Sequence[float], length_ms: float) -> float:
    """Return LAAL*: average lagging of one utterance with gamma = n / T, in ms.

    It needs no reference, so it exists in production too.
    """
    return average_lagging(times_ms, length_ms, len(times_ms))


def average_lagging(times_ms: Sequence[float], length_ms: float, target_units: int) -> float:
    """Return AL (Ma 2019, as SimulEval 1.1 computes it), in ms.

    The mean of t_i - (i - 1) / gamma with gamma = target units / T, up to and including the first
    unit at or after the end of the source. Falls below 0 where more was written than the
    reference has.

    Args:
        times_ms: t, each unit's delay or time on any clock, from the source's start; in order, at
            least one.
        length_ms: T, the source's length, more than 0.
    """
    if times_ms[0] > length_ms:
        return times_ms[0]
    # As SimulEval writes it: multiplying by T / m instead would differ in the last digits.
    gamma = target_units / length_ms
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        total_ms += time_ms - index / gamma
        counted += 1
        if time_ms >= length_ms:
            break
    return total_ms / counted
