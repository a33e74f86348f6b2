"""Average token delay: from the end of a source token to the end of the target token it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

from earvoice.evaluation.clock import Clock

# Speech has no tokens: the source is cut into pseudo-tokens of this length.
_SOURCE_TOKEN_MS = 300.0


def average_token_delay(delays_ms: Sequence[float], ends_ms: Sequence[float]) -> float:
    """Return ATD in ms (Kano 2023, as SimulEval 1.1 computes it for speech to text).

    Target token t of chunk c pairs with source token s = t - max(0, targets before c - sources
    before c), at most the last source token up to c. A chunk is a run of equal delays.

    Args:
        delays_ms: d, never falling, at least one.
        ends_ms: end of each target token, from ``target_ends``.
    """
    source_ends_ms = [0.0]
    previous_ms = 0.0
    lags_ms: list[float] = []
    for delay_ms, chunk in groupby(delays_ms):
        sources_before, targets_before = len(source_ends_ms) - 1, len(lags_ms)
        _extend(source_ends_ms, delay_ms - previous_ms)
        previous_ms = delay_ms
        shift = max(0, targets_before - sources_before)
        for target, _ in enumerate(chunk, start=targets_before + 1):
            source = min(target - shift, len(source_ends_ms) - 1)
            lags_ms.append(ends_ms[target - 1] - source_ends_ms[source])
    return fmean(lags_ms)


def target_ends(
    delays_ms: Sequence[float], times_ms: Sequence[float], clock: Clock
) -> tuple[float, ...]:
    """Return when each target token, which as text has no length, ended.

    On ``simuleval`` a token's computation is the increment of e - d, and follows the end of the
    token before. On the other clocks computation overlaps with audio, e - d can fall, and the
    token ends when it left.
    """
    if clock != "simuleval":
        return tuple(times_ms)
    ends_ms: list[float] = []
    end_ms = computed_before_ms = 0.0
    for delay_ms, time_ms in zip(delays_ms, times_ms, strict=True):
        computed_ms = time_ms - delay_ms
        end_ms = max(delay_ms, end_ms) + computed_ms - computed_before_ms
        computed_before_ms = computed_ms
        ends_ms.append(end_ms)
    return tuple(ends_ms)


def _extend(source_ends_ms: list[float], length_ms: float) -> None:
    """Cut more source into pseudo-tokens; the remainder is one too."""
    whole_tokens, rest_ms = divmod(length_ms, _SOURCE_TOKEN_MS)
    rest = [rest_ms] if rest_ms else []
    for token_ms in [_SOURCE_TOKEN_MS] * int(whole_tokens) + rest:
        source_ends_ms.append(source_ends_ms[-1] + token_ms)
