"""The (k, s, N) schedule: wait k frames, then write N tokens every s (Nguyen 2021, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from earvoice.policies.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    Snapshot,
    Token,
    integer_in,
    passed_units,
)
from earvoice.runtime.parameter import ParameterError, parameter

FRAME_MS = 10


@dataclass
class _Progress:
    """What the schedule remembers: when it last decided, None before it joins; tokens."""

    decided_ms: float | None = 0.0
    written: int = 0
    due: int = 0


@dataclass(frozen=True)
class FrameSchedule(DecisionPolicy):
    """Writes at most N tokens at step t, when g(t) = min{k + (t - 1) s, |X|} frames are heard.

    Steps merged by a late machine are made up for. Where commits are cut back to word borders, a
    token that was held back stays due: otherwise N = 1 would never write a word of two tokens.
    """

    name: ClassVar[str] = "frame_schedule"

    wait_frames: int = parameter(
        None,
        minimum=1,
        maximum=2000,
        unit="frames",
        required=True,
        help="k, frames of 10 ms before the first write; `stride_frames` or more",
    )
    stride_frames: int = parameter(
        None, minimum=1, maximum=500, unit="frames", required=True, help="s, frames between writes"
    )
    tokens: int = parameter(
        None,
        minimum=1,
        maximum=16,
        unit="tokens",
        required=True,
        help="N, most tokens in one write",
    )
    max_length_ratio: float = parameter(
        1.0,
        minimum=0.01,
        maximum=10.0,
        help="most tokens in an utterance, per encoder state",
    )
    progress: _Progress = field(init=False, repr=False, compare=False, default_factory=_Progress)

    def check_together(self) -> None:
        wait, stride = self.wait_frames, self.stride_frames
        if None not in (wait, stride) and wait < stride:
            raise ParameterError("wait_frames", wait, f"{stride} (stride_frames) or more")

    @property
    def required_segment_ms(self) -> tuple[int, int]:
        wait_ms = (self.wait_frames - self.stride_frames) * FRAME_MS
        return self.stride_frames * FRAME_MS, wait_ms

    def wants_hypothesis(self, heard: Heard) -> bool:
        self.progress.due = self.due_token_count(heard)
        return heard.state_count > 0 and self.progress.due > 0

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the token after the last one due."""
        del token
        return new_token_index >= self.progress.due

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        limit = int(self.max_length_ratio * heard.state_count)
        room = limit - len(hypothesis.prefix)
        count = max(0, min(self.due_token_count(heard), room, len(hypothesis.tokens)))
        self.progress.decided_ms = heard.duration_ms
        self.progress.written = heard.committed_token_count + count
        return Decision(count)

    def skip_segment(self, heard: Heard) -> None:
        """Skip the steps: a silent beginning is not made up for later."""
        self.progress.decided_ms = heard.duration_ms

    def step_at(self, duration_ms: float) -> int:
        """Return the newest step t with g(t) heard; 0 before the first."""
        frames = passed_units(duration_ms, FRAME_MS)
        return max(0, 1 + (frames - self.wait_frames) // self.stride_frames)

    def due_token_count(self, heard: Heard) -> int:
        """Return how many tokens after the forced prefix may be written."""
        step = self.step_at(heard.duration_ms)
        last_step = (
            max(0, step - 1)
            if self.progress.decided_ms is None
            else self.step_at(self.progress.decided_ms)
        )
        written = max(self.progress.written, heard.committed_token_count)
        newly_due = (step - last_step) * self.tokens
        return written + newly_due - heard.committed_token_count

    def take_over(self, committed_word_count: int, committed_token_count: int) -> None:
        """Join the schedule at the step that comes next."""
        del committed_word_count
        self.progress.decided_ms = None
        self.progress.written = committed_token_count

    def snapshot(self) -> Snapshot:
        """Return when the last write was, in the utterance, and the tokens written by then."""
        return {
            "decided_ms": self.progress.decided_ms,
            "written_token_count": self.progress.written,
        }

    def restore(self, snapshot: Snapshot) -> None:
        decided_ms = snapshot.get("decided_ms", "missing")
        if decided_ms is not None and not isinstance(decided_ms, (int, float)):
            raise ValueError(f"decided_ms = {decided_ms!r} is neither a number nor None")
        self.progress.decided_ms = decided_ms
        self.progress.written = integer_in(snapshot, "written_token_count")
