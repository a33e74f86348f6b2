"""How late words are: the one definition for metrics, traces, reports and the held lag."""

from __future__ import annotations

from collections.abc import Sequence


def word_lag_ms(release_ms: float, source_end_ms: float) -> float:
    """Return a word's lag in ms: how long after what it translates it is released."""
    return release_ms - source_end_ms


def laal_star_ms(times_ms: Sequence[float], length_ms: float) -> float:
    """Return LAAL*: average lagging (Ma 2019) of one utterance with gamma = n / T, in ms.

    The mean of t_i - (i - 1) / gamma over the words up to and with the first one at or after the
    utterance's end. It needs no reference, so it exists in production too.

    Args:
        times_ms: t, each word's delay or time on the wall clock, from the utterance's start; in
            order, at least one.
        length_ms: T, the utterance's length, more than 0.
    """
    if times_ms[0] > length_ms:
        return times_ms[0]
    # As SimulEval writes it: multiplying by T / n instead would differ in the last digits.
    gamma = len(times_ms) / length_ms
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        total_ms += time_ms - index / gamma
        counted += 1
        if time_ms >= length_ms:
            break
    return total_ms / counted
