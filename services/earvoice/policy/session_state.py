"""What a session remembers from one segment to the next, whatever utterance it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.event import ReleasedItem, SegmentWorked, UtteranceEnded
from earvoice.policy.guards import Guards
from earvoice.policy.lag_control import LagControl
from earvoice.policy.resume.snapshot import SessionSnapshot
from earvoice.policy.segment_grid import SegmentGrid
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.utterance import Utterance


class SessionState:
    """Begins as a snapshot says, and makes snapshots.

    Args:
        start: of a new session or of one that goes on.

    Attributes:
        asked: the options that the client asked for.
        options: those that hold: as asked for, at the lag to be held.
        guards: count what they cut.
        totals: so far.
        decided_sample: audio before this has been decided. An utterance may begin before the end
            of the last one's audio, which stays received.
        true_finished_ms: when the last segment was finished, on the clock of a `TrueTimeline`.
    """

    def __init__(self, start: SessionSnapshot) -> None:
        target_ms = start.options.target_lag_ms
        self._lag = LagControl(target_ms, start.lag_ms) if target_ms else None
        self.options = self.asked = start.options
        self.choose(start.options)
        self.guards = Guards(start.totals.guards_hit)
        self.totals = replace(start.totals)
        self.decided_sample = start.decided_sample
        self.true_finished_ms = start.true_finished_ms

    def choose(self, asked: StreamOptions) -> StreamOptions:
        """Return the options that hold from now on."""
        self.asked = asked
        self.options = self._lag.adjusted(asked) if self._lag else asked
        return self.options

    def note_items(self, items: Sequence[ReleasedItem]) -> None:
        """Take note of a segment's words."""
        self.totals.add_items(items)
        if self._lag is not None:
            self._lag.note(items, self.options)

    def utterance_after(self, utterance: Utterance, start_sample: int) -> Utterance:
        """Return the next utterance."""
        return Utterance(utterance.index + 1, start_sample, make_policy(self.options.policy))

    def restored_utterance(self, start: SessionSnapshot) -> Utterance:
        """Return the utterance that a session goes on with."""
        return Utterance.restored(start.utterance, make_policy(self.options.policy))

    def fresh_grid(self, start_sample: int) -> SegmentGrid:
        """Return the boundaries of an utterance that begins."""
        options = self.options
        return SegmentGrid(
            options.audio_format.sample_rate_hertz,
            options.segment_ms,
            options.initial_wait_ms,
            start_sample,
        )

    def snapshot(
        self, following: Utterance, grid: SegmentGrid, origin_s: float | None
    ) -> SessionSnapshot:
        """Return the session as it is between two segments.

        Args:
            following: the utterance that is worked on next.
            grid: the boundaries of its segments, if one has been worked on.
            origin_s: see `SessionSnapshot`.
        """
        return SessionSnapshot(
            self.asked,
            following.snapshot(),
            grid if following.segment_index else None,
            self._lag.lag_ms if self._lag else None,
            self.decided_sample,
            self.true_finished_ms,
            origin_s,
            replace(self.totals, guards_hit=dict(self.guards.hits)),
        )


def before_telling(
    snapshot: SessionSnapshot,
    finished_ms: float,
    worked: SegmentWorked,
    end: UtteranceEnded | None,
) -> SessionSnapshot:
    """Return a snapshot of the moment before a segment is told; its totals have it.

    Args:
        snapshot: all else.
        finished_ms: when the segment is finished, on the clock of a `TrueTimeline`.
        worked: the segment.
        end: of the utterance, if this is it.
    """
    totals = replace(snapshot.totals)
    totals.add_segment(worked)
    return replace(snapshot, true_finished_ms=finished_ms, totals=totals, segment=worked, end=end)
