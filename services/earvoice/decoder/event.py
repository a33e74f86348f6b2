"""What a session's caller is told, in the order of happening."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from earvoice.decoder.state_block import StatesId
from earvoice.decoder.strategies.base import BeamItem, Choice


class EndReason(IntEnum):
    """Why a generation ended; by the numbers on the wire, but for CLOSED, which is never sent."""

    END_OF_SEQUENCE = 1
    LIMIT = 2
    HALTED = 3
    REPLACED = 4
    ERROR = 5
    CLOSED = 100


@dataclass(frozen=True, slots=True)
class Spent:
    """Where a generation's time went up to now.

    Attributes:
        read_at_s: monotonic clock when its command was read, in seconds.
        queue_ms: milliseconds since then spent waiting for the engine.
        compute_ms: milliseconds spent computing.
        batch_size: generations that shared the last computation.
    """

    read_at_s: float
    queue_ms: float
    compute_ms: float
    batch_size: int


@dataclass(frozen=True, slots=True)
class Course:
    """How a generation went, for its trace; moments are on the monotonic clock, in seconds.

    Attributes:
        traceparent: the caller's span, or empty.
        prefill_s: when its first computation began; its end where there was none.
        prefilled_s: when that had ended.
        ended_s: when the generation ended.
        batch_size: most generations that shared one of its computations.
    """

    traceparent: str
    prefill_s: float
    prefilled_s: float
    ended_s: float
    batch_size: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """Tokens became known together; the first has position `first_index` in the hypothesis."""

    generation_id: int
    states_id: StatesId
    first_index: int
    choices: list[Choice]
    spent: Spent
    prefix_attention: list[list[float]]


@dataclass(frozen=True, slots=True)
class Beamed:
    """A beam search is over; the items' first tokens have position `first_index`."""

    generation_id: int
    states_id: StatesId
    first_index: int
    beam: list[BeamItem]
    spent: Spent
    prefix_attention: list[list[float]]


@dataclass(frozen=True, slots=True)
class Ended:
    """A generation ended; exactly one each.

    `failure` is set where the computation failed, `course` where the generation is traced.
    """

    generation_id: int
    reason: EndReason
    step_count: int
    draft_accepted_count: int
    near_tie_count: int
    spent: Spent
    failure: Exception | None = None
    course: Course | None = None


Event = Opened | Stepped | Beamed | Ended
