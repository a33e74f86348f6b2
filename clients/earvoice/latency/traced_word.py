"""Words, and where the time of each went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from earvoice.latency.stage import AUDIO_WAIT, HOLD, LATENESS, StageTimes
from earvoice.latency.traced_segment import ReleasedItem, TracedSegment
from earvoice.policy.lag import word_lag_ms

# Written without blanks: there each item counts by itself.
_UNSPACED_LANGUAGES = ("zh", "ja")


@dataclass(frozen=True)
class TracedWord:
    """A released word.

    Attributes:
        utterance: from 0.
        segment: the segment that released it (its last piece), from 1.
        delay_ms: audio received at its release.
        elapsed_ms: time of its release, on the session's clock.
        source_end_ms: where the audio that it attends to ends.
        stages: all of ``WORD_STAGES``; they add up to ``lag_ms``.
    """

    utterance: int
    segment: int
    delay_ms: float
    elapsed_ms: float
    source_end_ms: float
    stages: StageTimes

    @property
    def ideal_lag_ms(self) -> float:
        """Lag behind the speaker if computation cost nothing."""
        return word_lag_ms(self.delay_ms, self.source_end_ms)

    @property
    def lag_ms(self) -> float:
        """Lag behind the speaker on the session's clock."""
        return word_lag_ms(self.elapsed_ms, self.source_end_ms)


def words_of_segments(
    segments: Sequence[TracedSegment], target_language: str
) -> Iterator[TracedWord]:
    """Yield the words of a session's segments, given in order.

    A word that came in pieces is released with its last one.
    """
    unspaced = target_language.replace("_", "-").split("-")[0].lower() in _UNSPACED_LANGUAGES
    by_place = {segment.place: segment for segment in segments}
    word: TracedWord | None = None
    for segment in segments:
        for item in segment.items:
            end_ms = item.source_end_ms
            if word is not None and (item.starts_word or unspaced):
                yield word
            elif word is not None:
                end_ms = max(end_ms, word.source_end_ms)
            # A held word's time went by in the segment that committed it.
            committed = by_place.get((segment.utterance, item.commit_segment), segment)
            word = _word(segment, item, committed, end_ms)
    if word is not None:
        yield word


def _word(
    segment: TracedSegment, item: ReleasedItem, committed: TracedSegment, source_end_ms: float
) -> TracedWord:
    after_end_ms = {
        LATENESS.name: committed.lateness_ms,
        **committed.stages,
        HOLD.name: item.hold_ms,
    }
    # What is left: the audio had to come, and the policy chose to wait for it.
    lag_ms = word_lag_ms(item.elapsed_ms, source_end_ms)
    audio_wait_ms = lag_ms - sum(after_end_ms.values())
    return TracedWord(
        segment.utterance,
        segment.index,
        item.delay_ms,
        item.elapsed_ms,
        source_end_ms,
        {AUDIO_WAIT.name: audio_wait_ms, **after_end_ms},
    )
