"""Holds a mean word lag by moving the policy's own parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.words import Word
from earvoice.runtime.lag import word_lag_ms
from earvoice.runtime.stream_ranges import SEGMENT_MS

SEGMENT_STEP_MS = 10

MEMORY_WORDS = 12.0
"""Words after which a constant error has moved the scale by its own size."""

LARGEST_ERROR = 3.0
"""As a multiple of the target: one word with stray attention must not change everything."""

LONGEST_LAG = 4.0
"""Likewise: a limit where a policy cannot be slow enough, as in short utterances."""


def lag_after(lag_ms: float, words: Sequence[Word], options: StreamOptions) -> float:
    """Return the position on the lag scale after a segment's words, to hold the target lag.

    A word's lag is its release minus the end of its source, on the session's clock: live, the wall
    clock; in EVERY_SEGMENT, the ideal one, on which computation is free.
    """
    per_ms = options.audio_format.sample_rate_hz / 1000
    for word in words:
        if word.starts_word and options.target_lag_ms is not None:
            ideal_ms = word.delay_samples / per_ms
            release_ms = word.elapsed_ms if options.merges_segments else ideal_ms
            word_ms = word_lag_ms(release_ms, word.source_end_sample / per_ms)
            lag_ms = moved_lag(lag_ms, options.target_lag_ms, word_ms)
    return lag_ms


def moved_lag(lag_ms: float, target_ms: float, word_ms: float) -> float:
    """Return the position on a policy's lag scale after one more word: an integral controller.

    It starts at the target lag and moves by the sum of all errors over ``MEMORY_WORDS``. While it
    stays within its bounds, 0 to four times the target, the sum is bounded, so the mean error goes
    to zero as the number of words grows. It reads no clock: it depends only on the lags given.
    """
    bound_ms = LARGEST_ERROR * target_ms
    error_ms = max(-bound_ms, min(bound_ms, target_ms - word_ms))
    return max(0.0, min(LONGEST_LAG * target_ms, lag_ms + error_ms / MEMORY_WORDS))


def options_at_lag(options: StreamOptions, lag_ms: float) -> StreamOptions:
    """Return the options with the policy's parameter, or the segments, set for about this word lag.

    More lag never gives a parameter that speaks sooner: that is all the control relies on. The
    scales' constants, measured with the shipped model, start it near its goal: a stream of twenty
    words has no time to find it.
    """
    segment_ms = options.policy.segment_ms_at(lag_ms)
    if segment_ms is not None:
        steps = round(segment_ms / SEGMENT_STEP_MS)
        (shortest_ms, longest_ms), audio_format = SEGMENT_MS, options.audio_format
        if audio_format.encoding == "words":
            shortest_ms = max(shortest_ms, 1000 // audio_format.sample_rate_hz)
        rounded_ms = max(shortest_ms, min(longest_ms, steps * SEGMENT_STEP_MS))
        return replace(options, segment_ms=rounded_ms)
    # A word waits, on average, half a segment for its segment to end.
    wait_ms = max(0.0, lag_ms - options.segment_ms / 2)
    return replace(options, policy=options.policy.at_wait(wait_ms))
