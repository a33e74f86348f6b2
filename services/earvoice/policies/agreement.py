"""What earlier hypotheses of an utterance must agree on with the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from earvoice.policies.base import (
    DecisionPolicy,
    Snapshot,
    integers_in,
    longest_common_prefix_tokens,
)
from earvoice.runtime.parameter import parameter


class AgreementMemory:
    """The last hypotheses, each as whole token ids, forced prefix included."""

    def __init__(self) -> None:
        self._past: list[list[int]] = []

    def agree(self, prefix: Sequence[int], current: Sequence[int], earlier_count: int) -> int:
        """Return how many tokens after the prefix all agree on; 0 while there are too few.

        A hypothesis of the past that does not start with the prefix, after a change of policy or
        a cut loop, says nothing about it and is forgotten.
        """
        start, hypothesis = list(prefix), list(current)
        newest = self._past[-earlier_count:] if earlier_count else []
        earlier = [past for past in newest if past[: len(start)] == start]
        remembered = [*earlier, hypothesis]
        self._past = remembered[-earlier_count:] if earlier_count else []
        if len(earlier) < earlier_count:
            return 0
        return longest_common_prefix_tokens(remembered) - len(start)

    def forget_prefix(self, token_count: int) -> None:
        self._past = [past[token_count:] for past in self._past]

    def snapshot(self) -> Snapshot:
        """Return the newest hypothesis, and of the older ones how much they share with it.

        More is never asked of them: whoever agrees with an older one has to agree with the newest.
        """
        if not self._past:
            return {"newest": None, "shared": []}
        *older, newest = self._past
        shared = [longest_common_prefix_tokens([past, newest]) for past in older]
        return {"newest": list(newest), "shared": shared}

    def restore(self, snapshot: Snapshot) -> None:
        shared = integers_in(snapshot, "shared")
        if snapshot.get("newest", shared) is None:
            self._past = []
            return
        newest = integers_in(snapshot, "newest")
        self._past = [*(newest[:count] for count in shared), newest]


@dataclass(frozen=True)
class AgreementPolicy(DecisionPolicy):
    """Commits what the last n hypotheses, or beams, agree on; speaks after n segments."""

    n: int = parameter(minimum=1)
    past: AgreementMemory = field(
        init=False, repr=False, compare=False, default_factory=AgreementMemory
    )

    def segment_ms_at(self, lag_ms: float) -> float | None:
        return lag_ms / self.n

    def forget_prefix(self, token_count: int) -> None:
        self.past.forget_prefix(token_count)

    def snapshot(self) -> Snapshot:
        return self.past.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        self.past.restore(snapshot)
