"""Holds a mean word lag by moving the policy's own parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.words import Word
from earvoice.runtime.lag import word_lag_ms

SHORTEST_SEGMENT_MS, LONGEST_SEGMENT_MS = 200, 10_000
SEGMENT_STEP_MS = 10

MEMORY_WORDS = 12.0
"""Words after which a steady error has moved the scale by as much as itself."""

LARGEST_ERROR = 3.0
"""Of the target: one word with a stray attention is no reason to change everything."""

LONGEST_LAG = 4.0
"""Of the target: where a policy cannot be slow enough, as in short utterances, it stays near."""


def lag_after(lag_ms: float, words: Sequence[Word], options: StreamOptions) -> float:
    """Return the place on the scale of lags after a segment's words, held at the target lag.

    A word's lag is release less end of source, on the session's clock. Live it is the wall clock;
    in EVERY_SEGMENT the ideal one, on which computation is free.
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
    """Return the place on a policy's scale of lags after a word's: an integral control.

    It begins where the scale has the lag asked for, and moves from there by the sum of all errors
    over ``MEMORY_WORDS``: while it stays within its bounds, 0 to four times the target, the sum
    stays bounded, and so the mean error goes to nothing with the number of words. No clock: what it
    decides is a function of the lags it was told.
    """
    bound_ms = LARGEST_ERROR * target_ms
    error_ms = max(-bound_ms, min(bound_ms, target_ms - word_ms))
    return max(0.0, min(LONGEST_LAG * target_ms, lag_ms + error_ms / MEMORY_WORDS))


def options_at_lag(options: StreamOptions, lag_ms: float) -> StreamOptions:
    """Return the options with the policy's own parameter, or its segments, at a word lag, roughly.

    More lag never gives a parameter that speaks sooner: that is all the control relies on. The
    scales' constants, measured with the shipped model, make it begin near its goal: a stream of
    twenty words has no time to find it.
    """
    segment_ms = options.policy.segment_ms_at(lag_ms)
    if segment_ms is not None:
        steps = round(segment_ms / SEGMENT_STEP_MS)
        rounded_ms = max(SHORTEST_SEGMENT_MS, min(LONGEST_SEGMENT_MS, steps * SEGMENT_STEP_MS))
        return replace(options, segment_ms=rounded_ms)
    # A word waits half a segment for the end of its own.
    wait_ms = max(0.0, lag_ms - options.segment_ms / 2)
    return replace(options, policy=options.policy.at_wait(wait_ms))
