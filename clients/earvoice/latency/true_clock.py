"""The clock `true`, replayed from the segments of a session that was measured on the wall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from earvoice.latency.traced_segment import TracedSegment

Place = tuple[int, int]


def true_times_ms(segments: Sequence[TracedSegment]) -> Mapping[Place, float] | None:
    """Return when each segment's words would have left if only computation took time.

    A segment starts when its audio exists and the one before is finished: docs/latency.md.

    Args:
        segments: of one session, in order.

    Returns:
        by the segment's place; None where segments were merged or are missing: a faster machine
        would have decided others.
    """
    if not _is_complete(segments):
        return None
    times_ms: dict[Place, float] = {}
    received_ms, finished_ms = 0.0, 0.0
    for segment in segments:
        received_ms = max(received_ms, segment.end_ms)
        start_ms = max(received_ms, finished_ms)
        stages = segment.stages
        deciding_ms = stages["encoder_compute"] + stages["decoder_compute"]
        times_ms[segment.place] = start_ms + deciding_ms
        finished_ms = start_ms + segment.computation_ms
    return times_ms


def _is_complete(segments: Sequence[TracedSegment]) -> bool:
    follows = all(
        after.place in ((before.utterance, before.index + 1), (before.utterance + 1, 1))
        for before, after in pairwise(segments)
    )
    begins = bool(segments) and segments[0].place == (0, 1)
    return begins and follows and not any(segment.merged for segment in segments)
