"""What a decoding strategy does for the engine. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from earvoice.decoder.state_block import StateBlock

RunT = TypeVar("RunT")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a hypothesis starts from.

    Attributes:
        forced: token ids that are given, in order: start, language (if any), prefix.
        draft: token ids expected after them; verified, not trusted.
        attention_layer: decoder layer whose cross-attention is reported, from 1.
        forbid_end: never choose the end of sentence.
    """

    forced: tuple[int, ...]
    draft: tuple[int, ...]
    attention_layer: int
    forbid_end: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One predicted token.

    Attributes:
        token: vocabulary id.
        log_probability: natural logarithm of its softmax probability, over the whole vocabulary.
        attention: the predicting position's weight for each state, S values adding up to 1.
        near_tie: whether the two best logits allowed were closer than 1e-4.
        from_draft: whether the draft had it.
    """

    token: int
    log_probability: float
    attention: list[float]
    near_tie: bool
    from_draft: bool = False


class Strategy(ABC, Generic[RunT]):
    """Chooses tokens for many hypotheses; all calls come from the engine's thread."""

    @abstractmethod
    def begin(self, states: StateBlock, opening: Opening) -> tuple[RunT, list[Choice]]:
        """Read what is forced, verify the draft, and predict the first token after both.

        Returns:
            The run to step on with, and the choices known at once: the draft's longest agreeing
            part, then one token of the strategy's own unless that part ends the sentence.

        Raises:
            InvalidFieldError: the states are not finite numbers.
        """

    @abstractmethod
    def step(self, runs: Sequence[RunT]) -> list[Choice]:
        """Predict one more token for each run, all in one batch.

        A run whose step raised is unchanged and can be stepped again.
        """
