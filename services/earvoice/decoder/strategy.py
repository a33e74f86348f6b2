"""A loaded decoder as sessions and the engine see it: model and strategy. No torch here."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earvoice.api.v1 import types_pb2


@dataclass(frozen=True)
class TokenTable:
    """What each vocabulary id writes.

    Attributes:
        texts: UTF-8 bytes by id, without a word's leading space; empty for specials.
        starts_word: by id, whether the token begins a word.
    """

    texts: tuple[bytes, ...]
    starts_word: tuple[bool, ...]
    end_token: int


@dataclass(frozen=True)
class ServedModel:
    """Facts, sizes and tokens of the model served."""

    description: types_pb2.ModelDescription
    language_tokens: Mapping[str, tuple[int, ...]]
    """BCP-47 tag of each target to the tokens forced after the start token."""
    dimension: int
    """Values per encoder state."""
    tokens: TokenTable
    max_tokens: int | None = None
    """Most tokens of a hypothesis after those of the language; None for no limit."""
    least_empty_probability: float = 0.0
    """For final states without a prefix, an empty hypothesis must be at least this likely."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class StateBlock:
    """An encoder's states as received; what is computed from them is kept as long as they are.

    Attributes:
        source_text: tokens of the source-language text last written for this utterance; one list
            for all of its revisions, owned by the engine's thread.
    """

    message: types_pb2.States
    source_text: list[int] = field(default_factory=list)


def block_of(states: NDArray[np.float32], revision: int = 1, *, final: bool = False) -> StateBlock:
    """Return [S, d] states as an encoder would send them."""
    state_count, dimension = states.shape
    return StateBlock(
        types_pb2.States(
            states_id=types_pb2.StatesId(utterance=0, revision=revision),
            state_count=state_count,
            dimension=dimension,
            element_type=types_pb2.ELEMENT_TYPE_FLOAT32,
            data=states.astype("<f4", copy=False).tobytes(),
            final=final,
        )
    )


def least_end_probability(least_empty: float, states: StateBlock, prefix: Sequence[int]) -> float:
    """Return `Prompt.least_end_probability` for a model's `least_empty_probability`.

    It is 0 while more may be said: then "nothing yet" is a good answer.
    """
    return least_empty if states.message.final and not prefix else 0.0


@dataclass(frozen=True, slots=True)
class BeamPlan:
    """How a beam search is done.

    Attributes:
        size: hypotheses kept, and finished hypotheses wanted, 1 or more.
        max_new_tokens: most tokens after those forced, end of sentence included.
        all_hypotheses: whether all are reported, not only the best.
    """

    size: int
    max_new_tokens: int
    all_hypotheses: bool = False


NEVER = math.inf
"""More than any probability."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a hypothesis starts from.

    Attributes:
        forced: token ids that are given, in order: start, language (if any), prefix.
        draft: token ids expected after them; verified, not trusted. Beam search ignores them.
        attention_layer: decoder layer whose cross-attention is reported, from 1.
        forbid_end: never choose the end of sentence.
        least_end_probability: an end of sentence less likely than this is not chosen as the first
            token; `NEVER` forbids it there.
        attention_heads: heads whose mean is reported, from 1; empty takes all.
        reported_prefix_tokens: number of last forced tokens whose cross-attention is reported too.
        beam: how to search; None is greedy.
    """

    forced: tuple[int, ...]
    draft: tuple[int, ...]
    attention_layer: int
    forbid_end: bool
    attention_heads: tuple[int, ...] = ()
    reported_prefix_tokens: int = 0
    beam: BeamPlan | None = None
    least_end_probability: float = 0.0


@dataclass(frozen=True, slots=True)
class PredictedToken:
    """One predicted token.

    Attributes:
        log_probability: natural logarithm of its probability among the whole vocabulary, by the
            network and by the lexicon that translations may have.
        attention: the predicting position's weight for each state, S values adding up to 1; empty
            where it is not reported.
        near_tie: whether the two best allowed logits were closer than 1e-4.
        from_draft: whether it is an accepted token of the draft.
    """

    token: int
    log_probability: float
    attention: list[float]
    near_tie: bool = False
    from_draft: bool = False


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One hypothesis of a finished beam search.

    Attributes:
        tokens: its tokens after those forced, the end of sentence included where it was reached.
        score: sum of log-probabilities divided by length, undivided for a transducer; forced tokens
            except the start, and the end of sentence, count in both.
    """

    tokens: list[PredictedToken]
    score: float


@dataclass(frozen=True, slots=True)
class Progress:
    """What a computation has found out about one run.

    Attributes:
        tokens: those that are certain now, in order; a beam search has none.
        beam: the n-best hypotheses, best first; empty until a beam search is over.
        prefix_attention: rows of the prefix tokens asked for; with the first tokens, or the beam.
        source: the source-language text that is translated; only in a run's first progress.
        near_tie: whether two neighbours among a beam's candidates were closer than 1e-4.
    """

    tokens: list[PredictedToken]
    beam: list[Hypothesis] = field(default_factory=list)
    prefix_attention: list[list[float]] = field(default_factory=list)
    near_tie: bool = False
    source: list[PredictedToken] = field(default_factory=list)


class Preparation(ABC):
    """A run that writes what a hypothesis needs before it begins; see `Strategy.prepare`."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_over(self) -> bool: ...


class Strategy(ABC):
    """Chooses tokens for many hypotheses; all calls come from the engine's thread."""

    source_prompt: tuple[int, ...] = ()
    """Start of a hypothesis in the language that others are translated from, if there is one."""

    def prepare(self, states: StateBlock, forced: Sequence[int]) -> Preparation | None:  # noqa: ARG002 - for others
        """Begin what a hypothesis needs first, such as the text that it translates.

        Args:
            forced: forced tokens of the hypothesis' prompt.

        Returns:
            A run to be stepped like others until it is over, so that `begin` finds what it needs;
            None where nothing is needed any more.

        Raises:
            InvalidFieldError: as in `begin`.
        """
        return None

    @abstractmethod
    def begin(self, states: StateBlock, prompt: Prompt) -> tuple[Any, Progress]:
        """Read the forced tokens, verify the draft, and predict the first token after both.

        Returns:
            The run to step from here, and what is known at once: in greedy search the draft's
            longest agreeing prefix, then one predicted token unless that prefix ends the sentence.

        Raises:
            InvalidFieldError: the states are not finite numbers, or too large.
        """

    @abstractmethod
    def step(self, runs: Sequence[Any]) -> list[Progress]:
        """Predict one more token for each run, all in one batch.

        A run whose step raised is unchanged and can be stepped again.
        """
