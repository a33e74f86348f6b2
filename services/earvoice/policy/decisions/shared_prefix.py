"""SP-n: commit what whole beams agree on (Nguyen 2021b; Polák 2022, equation 3)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from earvoice.policy.decisions.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    longest_common_prefix_tokens,
)
from earvoice.policy.decisions.snapshot import Snapshot, token_lists

Beam = list[list[int]]


@dataclass(frozen=True)
class SharedPrefixParameters:
    """How SP-n decides.

    Attributes:
        n: segments whose beams must agree, 1 or more.
    """

    n: int = 1


class SharedPrefixPolicy(DecisionPolicy):
    """Commits the longest common prefix of all items of the last n beams (Polák 2022, equation 3).

    The forced prefix is common to all by construction: only what follows it is compared.
    """

    name = "shared_prefix"
    reads_beam = True

    def __init__(self, parameters: SharedPrefixParameters) -> None:
        self.parameters = parameters
        self._beams: deque[Beam] = deque(maxlen=parameters.n - 1)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the agreement; nothing while there are fewer than n beams.

        A beam of the past with an item that does not start with the prefix is forgotten, as in
        LA-n.

        Raises:
            ValueError: there are tokens, but no beam.
        """
        del heard
        if not hypothesis.alternatives:
            if hypothesis.tokens:
                raise ValueError("shared_prefix reads a beam, and the hypothesis has none")
            return Decision(0)
        prefix = list(hypothesis.prefix)
        current = [[*prefix, *item] for item in hypothesis.alternatives]
        earlier = [
            beam for beam in self._beams if all(item[: len(prefix)] == prefix for item in beam)
        ]
        self._beams = deque([*earlier, current], maxlen=self.parameters.n - 1)
        if len(earlier) < self.parameters.n - 1:
            return Decision(0)
        items = [item for beam in [*earlier, current] for item in beam]
        return Decision(longest_common_prefix_tokens(items) - len(prefix))

    def forget_prefix(self, token_count: int) -> None:
        """Take the same tokens off the beams, which begin with the prefix that they had."""
        shorter = ([item[token_count:] for item in beam] for beam in self._beams)
        self._beams = deque(shorter, maxlen=self.parameters.n - 1)

    def snapshot(self) -> Snapshot:
        """Return the last n - 1 beams."""
        return {"beams": [[list(item) for item in beam] for beam in self._beams]}

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the last n - 1 beams.

        Raises:
            ValueError: there is no list of beams.
        """
        beams = snapshot.get("beams")
        if not isinstance(beams, list):
            raise ValueError(f"beams = {beams!r} is not a list of beams")
        self._beams = deque(map(token_lists, beams), maxlen=self.parameters.n - 1)
