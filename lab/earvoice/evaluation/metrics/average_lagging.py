"""Average lagging and its kin: how far behind an ideal simultaneous translator, in ms.

The ideal one spreads its output evenly over the source: unit i leaves at (i - 1) / gamma. The
members of the family differ in gamma, and in which units count. Times are delays, or the times of
any computation-aware clock: the cut-off is then found on that clock.
"""

from __future__ import annotations

from collections.abc import Sequence


def average_lagging(times_ms: Sequence[float], source_length_ms: float, target_units: int) -> float:
    """Return AL (Ma 2019, as SimulEval 1.1 computes it).

    The mean of t_i - (i - 1) / gamma with gamma = target units / T, up to and with the first unit
    at or after the end of the source. Falls below 0 where more was written than the reference has.

    Args:
        times_ms: t, at least one.
        source_length_ms: T.
        target_units: m, the reference's length.
    """
    if times_ms[0] > source_length_ms:
        return times_ms[0]
    # As SimulEval writes it: multiplying by T / m instead would differ in the last digits.
    gamma = target_units / source_length_ms
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        total_ms += time_ms - index / gamma
        counted += 1
        if time_ms >= source_length_ms:
            break
    return total_ms / counted


def length_adaptive_average_lagging(
    times_ms: Sequence[float], source_length_ms: float, target_units: int
) -> float:
    """Return LAAL: AL with gamma = max(n, m) / T (Polak 2022, eq. 6; Papi 2022). Never below AL."""
    return average_lagging(times_ms, source_length_ms, max(len(times_ms), target_units))


def yet_another_average_lagging(
    times_ms: Sequence[float],
    source_length_ms: float,
    target_units: int,
    recording_end_ms: float | None = None,
) -> float | None:
    """Return YAAL (Polak 2025): LAAL over the units that left before the source's end.

    Args:
        times_ms: t.
        source_length_ms: T.
        target_units: m.
        recording_end_ms: for LongYAAL, the end of the recording that the segment is part of,
            relative to the segment's start; the tail is cut there.

    Returns:
        ms; None, to be skipped, if no unit left before the end.
    """
    end_ms = source_length_ms if recording_end_ms is None else recording_end_ms
    gamma = max(len(times_ms), target_units) / source_length_ms
    total_ms, counted = 0.0, 0
    for index, time_ms in enumerate(times_ms):
        if time_ms >= end_ms:
            break
        total_ms += time_ms - index / gamma
        counted += 1
    return total_ms / counted if counted else None


def uncut_lagging(times_ms: Sequence[float], source_length_ms: float, target_units: int) -> float:
    """Return the mean lag of all units: LAAL without its cut-off.

    AL and LAAL stop at the first unit after the source's end, and so do not see how long the rest
    takes on a machine that falls behind.
    """
    gamma = max(len(times_ms), target_units) / source_length_ms
    return sum(time_ms - index / gamma for index, time_ms in enumerate(times_ms)) / len(times_ms)
