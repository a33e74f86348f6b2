"""Wait-k: stay k words behind the source (Ma 2019; Papi 2022, section 2.1), or k strides.

With stride and catch-up it writes one token every stride of source (Han 2020, section 2.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from earvoice.policies.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    Snapshot,
    Token,
    integer_in,
    passed_units,
    reads_words,
)
from earvoice.runtime.parameter import ParameterError, parameter

WORD_DURATION_MS = 280.0
"""Mean duration of an English word (Papi 2022, section 2.1)."""

WordDetection = Literal["fixed", "adaptive"]


@dataclass
class _Counts:
    """What wait-k remembers: words written; of this segment, words due and seen."""

    written: int = 0
    due: int = 0
    seen: int = 0


@dataclass(frozen=True)
class WaitK(DecisionPolicy):
    """Writes w - (p + k) words when w source words were heard and p were written.

    The papers disagree by one word: ``inclusive`` writes when w >= p + k (Papi 2022, section 3; Han
    2020) instead of w > p + k (Papi 2022, section 2.1; released code).
    """

    name: ClassVar[str] = "wait_k"

    k: int = parameter(
        3,
        minimum=1,
        maximum=64,
        unit="words",
        lag=lambda _, wait_ms: wait_ms / WORD_DURATION_MS,
        help="words to wait",
    )
    detection: WordDetection = parameter(
        "fixed",
        help="a word every 280 ms of audio, or the words of the CTC transcript",
    )
    inclusive: bool = parameter(
        default=False, help="one word sooner: write when w ≥ p + k instead of w > p + k"
    )
    count_partial_word: bool = parameter(
        default=True, help="with `adaptive`: an unfinished last word counts"
    )
    end_while_reading: Literal["stop", "avoid", "commit"] = parameter(
        "stop",
        help="an end of sentence before the end of the source ends this segment's hypothesis, is "
        "never chosen, or ends the utterance's translation",
    )
    counts: _Counts = field(init=False, repr=False, compare=False, default_factory=_Counts)

    @property
    def forbids_end_while_reading(self) -> bool:
        return self.end_while_reading == "avoid"

    @property
    def ends_early(self) -> bool:
        return self.end_while_reading == "commit"

    def resolved(self, model: object) -> Self:
        policy = super().resolved(model)
        # In a text source the words are known.
        return replace(policy, detection="adaptive") if reads_words(model) else policy

    @property
    def source_word_parameter(self) -> str | None:
        return "detection" if self.detection == "adaptive" else None

    def wants_hypothesis(self, heard: Heard) -> bool:
        self.counts.due = self.due_word_count(heard)
        self.counts.seen = 0
        return heard.state_count > 0 and self.counts.due > 0

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        if new_token_index == 0:
            self.counts.seen = 0
        self.counts.seen += token.starts_word
        return self.counts.seen > self.counts.due

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the words due; they count as written even if the hypothesis is shorter."""
        due = self.due_word_count(heard)
        if due <= 0:
            return Decision(0)
        self.counts.written += due
        return words_decision(hypothesis, due, commit_end=self.ends_early)

    def skip_segment(self, heard: Heard) -> None:
        """Count the words due as written: a silent beginning is not made up for later."""
        self.counts.written += max(0, self.due_word_count(heard))

    def due_word_count(self, heard: Heard) -> int:
        ahead = self.source_word_count(heard) - (self.counts.written + self.k)
        return ahead + 1 if self.inclusive else ahead

    def source_word_count(self, heard: Heard) -> int:
        if self.detection == "fixed":
            return passed_units(heard.duration_ms, WORD_DURATION_MS)
        partial = heard.has_partial_word and self.count_partial_word
        return heard.complete_word_count + int(partial)

    def take_over(self, committed_word_count: int, committed_token_count: int) -> None:
        del committed_token_count
        self.counts.written = committed_word_count

    def snapshot(self) -> Snapshot:
        return {"written_word_count": self.counts.written}

    def restore(self, snapshot: Snapshot) -> None:
        self.counts.written = integer_in(snapshot, "written_word_count")


def words_decision(hypothesis: Hypothesis, word_count: int, *, commit_end: bool) -> Decision:
    """Take the tokens of the next words: up to the one that begins one word too many."""
    seen = 0
    for index, token in enumerate(hypothesis.tokens):
        seen += token.starts_word
        if token.starts_word and seen > word_count:
            return Decision(index)
    return Decision(len(hypothesis.tokens), ends_utterance=hypothesis.ended and commit_end)


_FLOAT_ERROR = 1e-9


DEFAULT_STRIDE_MS = 300


@dataclass
class _Now:
    """What strided wait-k remembers within a segment: what has been heard."""

    heard: Heard = field(default_factory=lambda: Heard(0.0, 0))


@dataclass(frozen=True)
class StridedWaitK(DecisionPolicy):
    """Writes token t of the utterance once g(t) = min{(k + t - 1 - floor(c t)) s, |x|} is heard.

    The minimum with the source's length |x| is the last commit of the utterance. Nothing is
    remembered from one segment to the next: t follows from what is committed.
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
        help="s in audio",
    )
    stride_words: int | None = parameter(
        None,
        minimum=1,
        maximum=16,
        unit="words",
        default_text="1 of a text",
        help="s in complete source words of the CTC transcript, instead of `stride_ms`",
    )
    catch_up: float = parameter(
        0.0,
        minimum=-1.0,
        maximum=4.0,
        help="c: ratio of target to source length, minus one; a negative c waits one more stride "
        "at t = 1",
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
        """The stride's duration; for one in words, an estimate."""
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
