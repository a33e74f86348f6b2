"""The (k, s, N) schedule: wait k frames, then write N tokens every s (Nguyen 2021, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policy.decisions.schedule import passed_units
from earvoice.policy.decisions.snapshot import Snapshot, integer_in

FRAME_MS = 10


@dataclass(frozen=True)
class FrameScheduleParameters:
    """How the schedule decides.

    Attributes:
        wait_frames: k, frames of 10 ms read before the first write; ``stride_frames`` or more.
        stride_frames: s, frames between writes, 1 or more.
        tokens: N, most tokens of a write, 1 or more.
        max_length_ratio: most tokens, as a share of the encoder's states, above 0.
    """

    wait_frames: int
    stride_frames: int
    tokens: int
    max_length_ratio: float = 1.0

    @property
    def segment_ms(self) -> int:
        """Segments that end where the schedule writes."""
        return self.stride_frames * FRAME_MS

    @property
    def initial_wait_ms(self) -> int:
        """How much longer the first of them is."""
        return (self.wait_frames - self.stride_frames) * FRAME_MS


class FrameSchedulePolicy(DecisionPolicy):
    """Writes at most N tokens at step t, when g(t) = min{k + (t - 1) s, |X|} frames are heard.

    Steps merged by a late machine are made up for. Where commits are cut back to word borders, a
    token that was held back stays due: otherwise N = 1 would never write a word of two tokens.
    """

    name = "frame_schedule"

    def __init__(self, parameters: FrameScheduleParameters) -> None:
        self.parameters = parameters
        self._decided_ms: float | None = 0.0
        self._written_token_count = 0
        self._due_token_count = 0

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Decode only when a write is due."""
        self._due_token_count = self.due_token_count(heard)
        return heard.state_count > 0 and self._due_token_count > 0

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the token after the last one due."""
        del token
        return new_token_index >= self._due_token_count

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the tokens due, within the length allowed."""
        limit = int(self.parameters.max_length_ratio * heard.state_count)
        room = limit - len(hypothesis.prefix)
        count = max(0, min(self.due_token_count(heard), room, len(hypothesis.tokens)))
        self._decided_ms = heard.duration_ms
        self._written_token_count = heard.committed_token_count + count
        return Decision(count)

    def pass_by(self, heard: Heard) -> None:
        """Let the steps go by: a silent beginning is not made up for later."""
        self._decided_ms = heard.duration_ms

    def step_at(self, duration_ms: float) -> int:
        """Return the newest step t with g(t) heard; 0 before the first."""
        frames = passed_units(duration_ms, FRAME_MS)
        return max(0, 1 + (frames - self.parameters.wait_frames) // self.parameters.stride_frames)

    def due_token_count(self, heard: Heard) -> int:
        """Return how many tokens after the forced prefix may be written."""
        step = self.step_at(heard.duration_ms)
        last_step = max(0, step - 1) if self._decided_ms is None else self.step_at(self._decided_ms)
        written = max(self._written_token_count, heard.committed_token_count)
        newly_due = (step - last_step) * self.parameters.tokens
        return written + newly_due - heard.committed_token_count

    def take_over(self, committed_word_count: int, committed_token_count: int) -> None:
        """Join the schedule at the step that comes next."""
        del committed_word_count
        self._decided_ms = None
        self._written_token_count = committed_token_count

    def snapshot(self) -> Snapshot:
        """Return when the last write was, in the utterance, and the tokens written by then."""
        return {
            "decided_ms": self._decided_ms,
            "written_token_count": self._written_token_count,
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Take over time and tokens.

        Raises:
            ValueError: there are no such numbers.
        """
        decided_ms = snapshot.get("decided_ms", "missing")
        if decided_ms is not None and not isinstance(decided_ms, (int, float)):
            raise ValueError(f"decided_ms = {decided_ms!r} is neither a number nor None")
        self._decided_ms = decided_ms
        self._written_token_count = integer_in(snapshot, "written_token_count")
