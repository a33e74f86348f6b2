"""Forward passes that can be computed again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable


class Tape:
    """Passes in the order they were made.

    Attributes:
        step_count: tokens that the decoder predicted, verified drafts included.
    """

    def __init__(self) -> None:
        self._passes: list[tuple[str, Callable[[], object]]] = []
        self.step_count = 0

    def add(self, network: str, compute: Callable[[], object]) -> None:
        """Add a pass, and the network that it belongs to."""
        self._passes.append((network, compute))

    def replay(self) -> dict[str, float]:
        """Compute all passes; return the processor's seconds, user and system, by network."""
        spent_s: dict[str, float] = defaultdict(float)
        began_s = time.process_time()
        for network, compute in self._passes:
            compute()
            ended_s = time.process_time()
            spent_s[network] += ended_s - began_s
            began_s = ended_s
        return spent_s
