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


@dataclass(frozen=True)
class AgreementPolicy(DecisionPolicy):
    """Commits what the last n hypotheses, or beams, agree on; speaks after n segments.

    Attributes:
        past: the hypotheses before, each as whole token ids, forced prefix included.
    """

    n: int = parameter(minimum=1)
    past: list[list[int]] = field(init=False, repr=False, compare=False, default_factory=list)

    def agree(self, prefix: Sequence[int], current: Sequence[int]) -> int:
        """Return how many tokens after the prefix all agree on; 0 while there are too few.

        A hypothesis of the past that does not start with the prefix, after a change of policy or
        a cut loop, says nothing about it and is forgotten.
        """
        start, earlier_count = list(prefix), self.n - 1
        newest = self.past[-earlier_count:] if earlier_count else []
        earlier = [past for past in newest if past[: len(start)] == start]
        remembered = [*earlier, list(current)]
        self.past[:] = remembered[-earlier_count:] if earlier_count else []
        if len(earlier) < earlier_count:
            return 0
        return longest_common_prefix_tokens(remembered) - len(start)

    def segment_ms_at(self, lag_ms: float) -> float | None:
        return lag_ms / self.n

    def forget_prefix(self, token_count: int) -> None:
        self.past[:] = [past[token_count:] for past in self.past]

    def snapshot(self) -> Snapshot:
        """Return the newest hypothesis, and of the older ones how much they share with it.

        More is never asked of them: whoever agrees with an older one has to agree with the newest.
        """
        if not self.past:
            return {"newest": None, "shared": []}
        *older, newest = self.past
        shared = [longest_common_prefix_tokens([past, newest]) for past in older]
        return {"newest": list(newest), "shared": shared}

    def restore(self, snapshot: Snapshot) -> None:
        shared = integers_in(snapshot, "shared")
        if snapshot.get("newest", shared) is None:
            self.past.clear()
            return
        newest = integers_in(snapshot, "newest")
        self.past[:] = [*(newest[:count] for count in shared), newest]
