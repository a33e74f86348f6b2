"""What earlier hypotheses of an utterance must agree on with the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from earvoice.policy.decisions.base import longest_common_prefix_tokens
from earvoice.policy.decisions.snapshot import Snapshot, integers_in


class AgreementMemory:
    """The last hypotheses, each as whole token ids, forced prefix included.

    Args:
        hypothesis_count: how many earlier ones must agree with the current one, 0 or more.
    """

    def __init__(self, hypothesis_count: int) -> None:
        self._needed_count = hypothesis_count
        self._past: deque[list[int]] = deque(maxlen=hypothesis_count)

    def agree(self, prefix: Sequence[int], current: Sequence[int]) -> int:
        """Return how many tokens after the prefix all agree on; 0 while there are too few.

        A hypothesis of the past that does not start with the prefix, after a change of policy or
        a cut loop, says nothing about it and is forgotten.

        Args:
            prefix: committed token ids.
            current: the hypothesis, which is remembered.
        """
        start, hypothesis = list(prefix), list(current)
        earlier = [past for past in self._past if past[: len(start)] == start]
        self._past = deque([*earlier, hypothesis], maxlen=self._needed_count)
        if len(earlier) < self._needed_count:
            return 0
        return longest_common_prefix_tokens([*earlier, hypothesis]) - len(start)

    def forget_prefix(self, token_count: int) -> None:
        """Take the same tokens off the hypotheses, which begin with the prefix that they had."""
        shorter = (past[token_count:] for past in self._past)
        self._past = deque(shorter, maxlen=self._needed_count)

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
        """Take over the hypotheses.

        Raises:
            ValueError: they are none.
        """
        shared = integers_in(snapshot, "shared")
        if snapshot.get("newest", shared) is None:
            self._past = deque(maxlen=self._needed_count)
            return
        newest = integers_in(snapshot, "newest")
        older = [newest[:count] for count in shared]
        self._past = deque([*older, newest], maxlen=self._needed_count)
