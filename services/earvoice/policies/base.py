"""What every decision policy is given and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from earvoice.runtime.parameter import Declared, Parameter, ParameterError, parameters_of

Snapshot = dict[str, object]
"""A policy's memory as plain JSON values."""

ROUNDING_MS = 0.13
"""Segments end on whole samples, up to one (0.125 ms at 8 kHz) before their boundary."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What has been heard of the utterance when a segment is decided.

    Attributes:
        duration_ms: audio since the utterance's start.
        state_count: encoder states, CTC-compressed where the model compresses.
        complete_word_count: source words of the CTC transcript known to be complete.
        has_partial_word: whether an unfinished one follows them.
        committed_token_count: tokens committed in the utterance.

    All but ``state_count`` still count what a history selection has forgotten.
    """

    duration_ms: float
    state_count: int
    complete_word_count: int = 0
    has_partial_word: bool = False
    committed_token_count: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """One predicted token.

    Attributes:
        text: UTF-8 bytes, possibly part of a character, without a word's blank.
        attention: cross-attention of the step that predicts it, ``[state_count]``, sums to 1.
        log_probability: natural logarithm.
    """

    token_id: int
    text: bytes
    starts_word: bool
    attention: Sequence[float]
    log_probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The forced prefix and what the decoder put after it, end of sentence excluded.

    Attributes:
        alternatives: new token ids of every item of the beam, best first, the best included,
            ends of sentence excluded; empty when the search was greedy.
        source: the text in the source language that it translates, where the model writes one.
    """

    prefix: Sequence[int]
    tokens: Sequence[Token]
    end: Token | None = None
    alternatives: Sequence[Sequence[int]] = ()
    source: Sequence[Token] = ()

    @property
    def ended(self) -> bool:
        return self.end is not None

    @property
    def token_ids(self) -> list[int]:
        """Ids of the whole hypothesis, prefix included."""
        return [*self.prefix, *(token.token_id for token in self.tokens)]


@dataclass(frozen=True, slots=True)
class Decision:
    """How much of a hypothesis to commit.

    Attributes:
        new_token_count: tokens after the prefix, 0 to ``len(hypothesis.tokens)``.
        ends_utterance: commit the end of sentence too; nothing more comes in this utterance.
    """

    new_token_count: int
    ends_utterance: bool = False


@dataclass(frozen=True)
class DecisionPolicy(Declared, ABC):
    """Decides how many tokens of the current hypothesis to commit.

    A policy is a frozen dataclass of its parameters, each declared by `parameter`. For a stream,
    `resolved` fills in the model's values; `begin` then makes the copy that decides one utterance,
    or a part of one when the stream changes its policy. What the copy remembers is an object in a
    field with ``init=False, compare=False``, made by its ``default_factory``; a policy that has one
    defines `snapshot` and `restore` too.

    Per segment: `wants_hypothesis`, then `is_decided` for each new token as it comes, until it says
    so, then `decide` once, of the tokens up to there. A beam comes whole. No clock, no I/O.
    """

    name: ClassVar[str] = ""
    """The name it is chosen by: lower case, digits and underscores."""
    reads_beam: ClassVar[bool] = False
    """Needs every item of a beam of 2 or more (``Hypothesis.alternatives``)."""
    commits_while_reading: ClassVar[bool] = True
    """Whether anything is committed before an utterance has ended."""

    @abstractmethod
    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Say how many tokens of the hypothesis to commit."""

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Say whether decoding could lead to a commit at all."""
        return heard.state_count > 0

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Say whether the decoder may halt after this token, counted from 0 after the prefix.

        From 0 again if a replica was lost: another one restarts the hypothesis.
        """
        del token, new_token_index
        return False

    def undecided_count(self, tokens: Sequence[Token]) -> int:
        """Return how many new tokens come before the first after which the decoder may halt."""
        decided = (index for index, token in enumerate(tokens) if self.is_decided(token, index))
        return next(decided, len(tokens))

    def take_over(self, committed_word_count: int, committed_token_count: int) -> None:
        """Enter an utterance that another policy has begun. Called once, before anything else."""
        del committed_word_count, committed_token_count

    def skip_segment(self, heard: Heard) -> None:
        """Note that the guards allow no commit in a segment: what was due then is skipped.

        Called in place of `wants_hypothesis`.
        """
        del heard

    def forget_prefix(self, token_count: int) -> None:
        """Note that history selection has dropped the prefix's first tokens, 1 or more."""
        del token_count

    def snapshot(self) -> Snapshot:
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        """Restore what `snapshot` returned; raises ValueError for anything else."""
        if snapshot:
            raise ValueError(f"{self.name} has no memory, got {sorted(snapshot)}")

    @property
    def attention(self) -> tuple[int | None, tuple[int, ...]]:
        """The decoder layer that is read, from 1, or None for any; its heads, empty for all."""
        return None, ()

    @property
    def ends_early(self) -> bool:
        """Whether an end of sentence may be committed before the end of the source."""
        return False

    @property
    def forbids_end_while_reading(self) -> bool:
        """Whether the decoder is never to end the sentence while the source goes on."""
        return False

    @property
    def required_segment_ms(self) -> tuple[int, int] | None:
        """Duration of the segments and how much longer the first is, if the policy dictates it."""
        return None

    @property
    def source_word_parameter(self) -> str | None:
        """The parameter that makes it read source words from a CTC transcript, if it does."""
        return None

    def begin(self) -> Self:
        """Return the policy for an utterance: it remembers nothing yet."""
        return replace(self)

    def resolved(self, model: object) -> Self:
        """Return the policy with the model's values for what is not given.

        Args:
            model: has the attributes that parameters name by ``model`` and ``model_maximum``; a
                maximum of 0 means unknown.
        """
        values = {}
        for name, declared in parameters_of(type(self)).items():
            value, facts = getattr(self, name), declared.facts
            if value is None and "model" in facts:
                value = getattr(model, facts["model"])
            if value is None and facts.get("required"):
                raise ParameterError(name, value, declared.allowed, "is missing")
            maximum = getattr(model, facts["model_maximum"]) if "model_maximum" in facts else 0
            if maximum:
                replace(declared, maximum=maximum).check(value)
            values[name] = value
        return replace(self, **values)

    @classmethod
    def required_parameters(cls) -> list[str]:
        declared = parameters_of(cls).values()
        return [parameter.name for parameter in declared if parameter.facts.get("required")]

    @property
    def has_lag_scale(self) -> bool:
        """Whether the lag can be held by moving a parameter, or the segments' duration."""
        return self._lag_parameter is not None or self.segment_ms_at(0.0) is not None

    def segment_ms_at(self, lag_ms: float) -> float | None:
        """Return the segment duration for a word lag, where the lag depends on it."""
        del lag_ms
        return None

    def at_wait(self, wait_ms: float) -> Self:
        """Return the policy with its ``lag`` parameter set to wait this long; itself without one.

        More wait never gives a value that speaks sooner.
        """
        declared = self._lag_parameter
        if declared is None:
            return self
        value = declared.facts["lag"](self, wait_ms)
        value = round(value) if declared.kind is int else value
        if declared.maximum is not None:
            value = min(declared.maximum, value)
        if declared.minimum is not None:
            value = max(declared.minimum, value)
        return replace(self, **{declared.name: value})

    @property
    def _lag_parameter(self) -> Parameter | None:
        declared = parameters_of(type(self)).values()
        return next((parameter for parameter in declared if "lag" in parameter.facts), None)


def longest_common_prefix_tokens(sequences: Sequence[Sequence[int]]) -> int:
    """Return how many leading tokens all sequences share; 0 when there are none."""
    length = 0
    for items in zip(*sequences, strict=False):
        if len(set(items)) != 1:
            break
        length += 1
    return length


def reads_words(model: object) -> bool:
    """Say whether a described model's source is text, whose words are known."""
    return bool(getattr(model, "reads_words", False))


def passed_units(duration_ms: float, unit_ms: float) -> int:
    return int((duration_ms + ROUNDING_MS) // unit_ms)


def integer_in(snapshot: Snapshot, name: str) -> int:
    """Return an integer from a snapshot."""
    count = snapshot.get(name)
    if not isinstance(count, int) or isinstance(count, bool):
        raise ValueError(f"{name} = {count!r} is not an integer")
    return count


def integers_in(snapshot: Snapshot, name: str) -> list[int]:
    """Return a copy of a list of integers from a snapshot."""
    values = snapshot.get(name)
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError(f"{name} = {values!r} is not a list of integers")
    return list(values)
