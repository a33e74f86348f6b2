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


class LagControl:
    """An integral control on a policy's scale of lags.

    It begins where the scale has the lag asked for, and moves from there by the sum of all errors
    over ``MEMORY_WORDS``: while it stays within its bounds, the sum stays bounded, and so the mean
    error goes to nothing with the number of words. No clock: what it decides is a function of the
    lags it was told.

    Args:
        lag_ms: the place to go on from; None begins at the target.

    Attributes:
        lag_ms: the place on the scale, 0 to four times the target.
    """

    def __init__(self, target_ms: float, lag_ms: float | None = None) -> None:
        self._target_ms = target_ms
        self.lag_ms = target_ms if lag_ms is None else lag_ms

    def note(self, items: Sequence[Word], options: StreamOptions) -> None:
        """Take note of a segment's words: release less end of source, on the session's clock.

        Live it is the wall clock; in EVERY_SEGMENT the ideal one, on which computation is free.
        """
        per_ms = options.audio_format.sample_rate_hz / 1000
        for item in items:
            if item.starts_word:
                ideal_ms = item.delay_samples / per_ms
                release_ms = item.elapsed_ms if options.merges_segments else ideal_ms
                self.note_lag(word_lag_ms(release_ms, item.source_end_sample / per_ms))

    def note_lag(self, lag_ms: float) -> None:
        bound_ms = LARGEST_ERROR * self._target_ms
        error_ms = max(-bound_ms, min(bound_ms, self._target_ms - lag_ms))
        moved_ms = self.lag_ms + error_ms / MEMORY_WORDS
        self.lag_ms = max(0.0, min(LONGEST_LAG * self._target_ms, moved_ms))


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
