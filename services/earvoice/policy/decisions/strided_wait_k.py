"""Wait-k with stride and catch-up: one token every stride of source (Han 2020, section 2.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from earvoice.policy.decisions.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policy.decisions.schedule import passed_units

_FLOAT_ERROR = 1e-9


@dataclass(frozen=True)
class StridedWaitKParameters:
    """How strided wait-k decides; exactly one of the strides is not None.

    Attributes:
        k: strides to wait, 1 or more.
        stride_ms: s, audio read for each target token.
        stride_words: s, complete source words of the greedy CTC transcript read for each.
        catch_up: c, ratio of target to source length minus one.
    """

    k: int = 3
    stride_ms: int | None = 300
    stride_words: int | None = None
    catch_up: float = 0.0

    def __post_init__(self) -> None:
        """Check the strides.

        Raises:
            ValueError: none or both are given.
        """
        if (self.stride_ms is None) == (self.stride_words is None):
            raise ValueError(
                f"stride_ms = {self.stride_ms}, stride_words = {self.stride_words}: give one"
            )


class StridedWaitKPolicy(DecisionPolicy):
    """Writes token t of the utterance once g(t) = min{(k + t - 1 - floor(c t)) s, |x|} is heard.

    The minimum with the source's length |x| is the last commit of the utterance. It remembers
    nothing: t follows from what is committed.
    """

    name = "strided_wait_k"

    def __init__(self, parameters: StridedWaitKParameters) -> None:
        self.parameters = parameters
        self._heard = Heard(0.0, 0)

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Decode only when a token is due."""
        self._heard = heard
        return heard.state_count > 0 and self._is_due(heard, 0)

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the first token that is not due."""
        del token
        return not self._is_due(self._heard, new_token_index)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the tokens that are due."""
        for index in range(len(hypothesis.tokens)):
            if not self._is_due(heard, index):
                return Decision(index)
        return Decision(len(hypothesis.tokens))

    def required_strides(self, token_number: int) -> int:
        """Return g(t) / s, the strides that must be heard before token t, counted from 1."""
        saved = math.floor(self.parameters.catch_up * token_number + _FLOAT_ERROR)
        return self.parameters.k + token_number - 1 - saved

    def heard_strides(self, heard: Heard) -> int:
        """Return the whole strides heard."""
        if self.parameters.stride_words is not None:
            return heard.complete_word_count // self.parameters.stride_words
        return passed_units(heard.duration_ms, float(self.parameters.stride_ms or 0))

    def _is_due(self, heard: Heard, new_token_index: int) -> bool:
        number = heard.committed_token_count + new_token_index + 1
        return self.required_strides(number) <= self.heard_strides(heard)
