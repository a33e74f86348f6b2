"""Where a committed token came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.policy.timeline import CommitTime


@dataclass(frozen=True)
class TokenOrigin:
    """Where a committed token came from.

    Attributes:
        source_start_sample: where the state it attends to begins.
        source_end_sample: where that state ends.
        commit_time: when it was committed.
    """

    source_start_sample: int
    source_end_sample: int
    commit_time: CommitTime


def joined_origin(origins: Sequence[TokenOrigin]) -> TokenOrigin:
    """Return the origin of what several tokens in a row stand for; at least one."""
    return TokenOrigin(
        min(origin.source_start_sample for origin in origins),
        max(origin.source_end_sample for origin in origins),
        origins[-1].commit_time,
    )
