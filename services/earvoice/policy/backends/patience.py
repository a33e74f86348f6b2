"""How long a session waits for the services behind us."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds.

    Attributes:
        answer_s: for an answer, where the replica does not tell its health either: it is stopped,
            or cut off.
        slow_answer_s: for an answer of a replica that tells its health: it is slow.
        replacement_s: for another replica, once one is lost.
        opening_s: for a first one, before a client is refused.
    """

    answer_s: float = 3.0
    slow_answer_s: float = 30.0
    replacement_s: float = 10.0
    opening_s: float = 2.0
