"""From a complete word to what the client is told of it."""

from __future__ import annotations

from dataclasses import replace

from earvoice.policy.event import ReleasedItem
from earvoice.policy.timeline import CommitTime
from earvoice.policy.token_origin import TokenOrigin, joined_origin
from earvoice.policy.words import Word


def released_item(
    word: Word[TokenOrigin], utterance: int, now: CommitTime, delay_samples: int
) -> ReleasedItem:
    """Return a word with its place in the audio and its times.

    Args:
        word: its origins tell where its tokens attend to and when they were committed.
        utterance: from 0.
        now: when it is released.
        delay_samples: audio of the session received by now.
    """
    origin = joined_origin(word.origins)
    committed = origin.commit_time
    hold_ms = now.moment_ms - committed.moment_ms
    stages = replace(
        committed.stages, total_ms=committed.stages.total_ms + hold_ms, word_hold_ms=hold_ms
    )
    return ReleasedItem(
        word.text,
        word.starts_word,
        utterance,
        origin.source_start_sample,
        origin.source_end_sample,
        delay_samples,
        now.elapsed_ms,
        stages,
        committed.segment,
    )
