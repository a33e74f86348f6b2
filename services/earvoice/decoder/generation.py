"""One hypothesis being made: what was asked, what has come, why it must stop."""

from __future__ import annotations

from dataclasses import dataclass

from earvoice.decoder.event import Beamed, Course, Ended, EndReason, Spent, Stepped
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.state_block import StateBlock
from earvoice.decoder.strategies.base import Choice, Opening, Progress


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one generation shall do.

    Attributes:
        generation_id: the caller's number for it.
        states: what it attends to.
        opening: what it starts from.
        prefix_length: tokens of the forced prefix; the first new token has this index.
        max_new_tokens: most tokens after the prefix.
        end_token: id of the end of sentence.
        read_at_s: monotonic clock when the command was read, in seconds.
        traceparent: the caller's span, or empty.
    """

    generation_id: int
    states: StateBlock
    opening: Opening
    prefix_length: int
    max_new_tokens: int
    end_token: int
    read_at_s: float
    traceparent: str = ""


class Generation:
    """An assignment and how far it has come.

    The event loop calls `stop`; everything else belongs to the engine's thread.

    Args:
        assignment: what to do.
        outbox: where its events go.
    """

    def __init__(self, assignment: Assignment, outbox: Outbox) -> None:
        self.assignment = assignment
        self.outbox = outbox
        self.stop_reason: EndReason | None = None
        self._step_count = 0
        self._draft_accepted_count = 0
        self._near_tie_count = 0
        self._compute_ms = 0.0
        self._batch_size = 1
        self._largest_batch = 0
        self._prefill_s: float | None = None
        self._prefilled_s = 0.0
        self._paused_ms = 0.0
        self._paused_at_s: float | None = None

    def stop(self, reason: EndReason) -> None:
        """Ask the engine to end it before its next step; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def pause(self, now_s: float) -> None:
        """Note that it is not stepped from now on, because its caller does not read."""
        if self._paused_at_s is None:
            self._paused_at_s = now_s

    def compute(self, started_s: float, now_s: float, batch_size: int) -> None:
        """Note a computation that it had a part in."""
        if self._paused_at_s is not None:
            self._paused_ms += (started_s - self._paused_at_s) * 1000
            self._paused_at_s = None
        self._compute_ms += (now_s - started_s) * 1000
        self._batch_size = batch_size
        self._largest_batch = max(self._largest_batch, batch_size)
        if self._prefill_s is None:
            self._prefill_s, self._prefilled_s = started_s, now_s

    def accept(
        self, progress: Progress, now_s: float
    ) -> tuple[Stepped | Beamed | None, EndReason | None]:
        """Take in what has become known.

        Returns:
            The event for it, if there is anything to tell, and why the generation is over, if it
            is.
        """
        self._near_tie_count += progress.near_tie
        if progress.beam:
            return self._accept_beam(progress, now_s)
        if not progress.choices:
            return None, None
        return self._accept_choices(progress, now_s)

    def _accept_choices(self, progress: Progress, now_s: float) -> tuple[Stepped, EndReason | None]:
        first = self._step_count
        kept = progress.choices[: self.assignment.max_new_tokens - first]
        self._step_count += len(kept)
        self._draft_accepted_count += sum(choice.from_draft for choice in kept)
        self._near_tie_count += sum(choice.near_tie for choice in kept)
        event = Stepped(
            self.assignment.generation_id,
            self.assignment.states.states_id,
            self.assignment.prefix_length + first,
            kept,
            self.spent(now_s),
            progress.prefix_attention,
        )
        full = self._step_count >= self.assignment.max_new_tokens
        return event, self._end_reason(kept, full=full)

    def _accept_beam(self, progress: Progress, now_s: float) -> tuple[Beamed, EndReason | None]:
        best = progress.beam[0].choices
        self._step_count = len(best)
        event = Beamed(
            self.assignment.generation_id,
            self.assignment.states.states_id,
            self.assignment.prefix_length,
            progress.beam,
            self.spent(now_s),
            progress.prefix_attention,
        )
        return event, self._end_reason(best, full=True)

    def _end_reason(self, choices: list[Choice], *, full: bool) -> EndReason | None:
        if choices[-1].token == self.assignment.end_token:
            return EndReason.END_OF_SEQUENCE
        return EndReason.LIMIT if full else None

    def end(self, reason: EndReason, now_s: float, failure: Exception | None = None) -> Ended:
        """Give the event that closes it."""
        return Ended(
            self.assignment.generation_id,
            reason,
            self._step_count,
            self._draft_accepted_count,
            self._near_tie_count,
            self.spent(now_s),
            failure,
            self._course(now_s) if self.assignment.traceparent else None,
        )

    def _course(self, now_s: float) -> Course:
        begun = self._prefill_s is not None
        return Course(
            self.assignment.traceparent,
            self._prefill_s if self._prefill_s is not None else now_s,
            self._prefilled_s if begun else now_s,
            now_s,
            self._largest_batch,
        )

    def spent(self, now_s: float) -> Spent:
        """Where the time since its command went, up to now; pauses are neither queue nor work."""
        paused_ms = self._paused_ms
        if self._paused_at_s is not None:
            paused_ms += (now_s - self._paused_at_s) * 1000
        read_at_s = self.assignment.read_at_s
        queue_ms = (now_s - read_at_s) * 1000 - self._compute_ms - paused_ms
        return Spent(read_at_s, max(0.0, queue_ms), self._compute_ms, self._batch_size)
