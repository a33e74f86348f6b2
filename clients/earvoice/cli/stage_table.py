"""Where the time of released words went, as a small table."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.client.event import CommittedWord, ElapsedClock, Summary

# Field of StageTimings, and what to call it.
_STAGES = (
    ("merge_wait_ms", "merge wait"),
    ("previous_segment_wait_ms", "wait for the segment before"),
    ("encoder_queue_ms", "encoder queue"),
    ("encoder_compute_ms", "encoder computation"),
    ("encoder_network_ms", "network to the encoder"),
    ("decoder_queue_ms", "decoder queue"),
    ("decoder_compute_ms", "decoder computation"),
    ("decoder_network_ms", "network to the decoder"),
    ("decision_ms", "decision"),
    ("word_hold_ms", "hold for the word"),
)
_WIDTH = 34


def stage_table(words: Sequence[CommittedWord], clock: ElapsedClock) -> str:
    """Return the table: mean and maximum of each stage over the words, in milliseconds.

    Args:
        words: with their stage timings; at least one.
        clock: the session's clock; the client's residual exists on the live one only.
    """
    timings = [word.stage_timings for word in words if word.stage_timings is not None]
    # A later piece of a word has a time of its own, and is no other word.
    count = sum(word.starts_word for word in words)
    lines = [f"{f'where the time of {count} words went':{_WIDTH}}  mean ms   max ms"]
    for field, name in _STAGES:
        lines.append(_row(f"  {name}", [getattr(timing, field) for timing in timings]))
    lines.append(_row("in the services", [timing.total_ms for timing in timings]))
    if clock == "live":
        lines.append(_row("client network", [word.client_network_ms for word in words]))
    lines.append(_row("audio wait (the policy's choice)", [t.audio_wait_ms for t in timings]))
    if clock == "live":
        lines.append(_row("lag behind the speaker", [word.live_lag_ms for word in words]))
    return "\n".join(lines)


def computation_line(summary: Summary) -> str:
    """Return the computation of all services and the real-time factor (computation / audio)."""
    factor = summary.computation_ms / summary.audio_ms if summary.audio_ms else 0.0
    return (
        f"computation of all services: {summary.computation_ms:.0f} ms "
        f"for {summary.audio_ms:.0f} ms of audio, real-time factor {factor:.3f}"
    )


def _row(name: str, values_ms: Sequence[float]) -> str:
    return f"{name:{_WIDTH}}{fmean(values_ms):9.1f}{max(values_ms):9.1f}"
