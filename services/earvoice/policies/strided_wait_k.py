"""Wait-k with stride and catch-up: one token every stride of source (Han 2020, section 2.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from earvoice.policies.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    Token,
    passed_units,
    reads_words,
)
from earvoice.policies.wait_k import WORD_DURATION_MS
from earvoice.runtime.parameter import ParameterError, parameter

_FLOAT_ERROR = 1e-9


DEFAULT_STRIDE_MS = 300


@dataclass
class _Now:
    """What strided wait-k remembers within a segment: what has been heard."""

    heard: Heard = field(default_factory=lambda: Heard(0.0, 0))


@dataclass(frozen=True)
class StridedWaitK(DecisionPolicy):
    """Writes token t of the utterance once g(t) = min{(k + t - 1 - floor(c t)) s, |x|} is heard.

    The minimum with the source's length |x| is the last commit of the utterance. Nothing of one
    segment is remembered in the next: t follows from what is committed.
    """

    name: ClassVar[str] = "strided_wait_k"

    k: int = parameter(
        3,
        minimum=1,
        maximum=64,
        unit="strides",
        lag=lambda policy, wait_ms: wait_ms / policy.stride_length_ms,
        help="strides to wait",
    )
    stride_ms: int | None = parameter(
        None,
        minimum=40,
        maximum=4000,
        unit="ms",
        default_text=f"{DEFAULT_STRIDE_MS} unless `stride_words` is given or the source is text",
        help="s as audio",
    )
    stride_words: int | None = parameter(
        None,
        minimum=1,
        maximum=16,
        unit="words",
        default_text="1 of a text",
        help="s as complete source words of the CTC transcript, instead of `stride_ms`",
    )
    catch_up: float = parameter(
        0.0,
        minimum=-1.0,
        maximum=4.0,
        help="c: ratio of target to source length, minus one; a negative one waits for one stride "
        "more at t = 1",
    )
    now: _Now = field(init=False, repr=False, compare=False, default_factory=_Now)

    def check_together(self) -> None:
        if self.stride_ms is not None and self.stride_words is not None:
            raise ParameterError("stride_words", self.stride_words, "unset beside stride_ms")

    @property
    def source_word_parameter(self) -> str | None:
        return "stride_words" if self.stride_words is not None else None

    @property
    def stride_length_ms(self) -> float:
        """The stride's duration; of one in words, about."""
        if self.stride_words is not None:
            return self.stride_words * WORD_DURATION_MS
        return self.stride_ms or DEFAULT_STRIDE_MS

    def resolved(self, model: object) -> Self:
        policy = super().resolved(model)
        if policy.stride_ms is not None or policy.stride_words is not None:
            return policy
        if reads_words(model):
            return replace(policy, stride_words=1)
        return replace(policy, stride_ms=DEFAULT_STRIDE_MS)

    def wants_hypothesis(self, heard: Heard) -> bool:
        self.now.heard = heard
        return heard.state_count > 0 and self._is_due(heard, 0)

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the first token that is not due."""
        del token
        return not self._is_due(self.now.heard, new_token_index)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        for index in range(len(hypothesis.tokens)):
            if not self._is_due(heard, index):
                return Decision(index)
        return Decision(len(hypothesis.tokens))

    def required_strides(self, token_number: int) -> int:
        """Return g(t) / s, the strides that must be heard before token t, counted from 1."""
        saved = math.floor(self.catch_up * token_number + _FLOAT_ERROR)
        return self.k + token_number - 1 - saved

    def heard_strides(self, heard: Heard) -> int:
        if self.stride_words is not None:
            return heard.complete_word_count // self.stride_words
        return passed_units(heard.duration_ms, self.stride_length_ms)

    def _is_due(self, heard: Heard, new_token_index: int) -> bool:
        number = heard.committed_token_count + new_token_index + 1
        return self.required_strides(number) <= self.heard_strides(heard)
