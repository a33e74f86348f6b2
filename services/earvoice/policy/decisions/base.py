"""What every decision policy is given and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from earvoice.policy.decisions.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Heard:
    """What has been heard of the utterance when a segment is decided.

    Attributes:
        duration_ms: audio since the utterance's start.
        state_count: encoder states, CTC-compressed where the model compresses.
        complete_word_count: source words of the greedy CTC transcript known to be complete.
        has_partial_word: whether an unfinished one follows them.
        committed_token_count: tokens committed in the utterance.

    All but ``state_count`` run on over a history selection: what it forgot stays counted.
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
        token_id: vocabulary id.
        text: UTF-8 bytes, possibly part of a character, without a word's blank.
        starts_word: whether it begins a word.
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
        prefix: committed token ids of the utterance.
        tokens: the new tokens seen, in order.
        end: the end of sentence, if it followed them.
        alternatives: new token ids of every item of the beam, best first, the best included,
            ends of sentence excluded; empty when the search was greedy.
    """

    prefix: Sequence[int]
    tokens: Sequence[Token]
    end: Token | None = None
    alternatives: Sequence[Sequence[int]] = ()

    @property
    def ended(self) -> bool:
        """Whether end of sentence followed."""
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


class DecisionPolicy(ABC):
    """Decides how many tokens of the current hypothesis to commit.

    Per segment: ``wants_hypothesis``, then ``is_decided`` for each new token as it comes, then
    ``decide`` once. No clock, no I/O. A policy lives as long as one utterance, or, when the stream
    changes its policy, for a part of one.
    """

    name: ClassVar[str]
    #: Needs every item of a beam of 2 or more (``Hypothesis.alternatives``).
    reads_beam: ClassVar[bool] = False
    #: Ask the decoder never to end the sentence while the source goes on.
    forbids_end_while_reading: bool = False

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Say whether decoding could lead to a commit at all."""
        return heard.state_count > 0

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Say whether the decoder may halt after this token.

        Args:
            token: the newest token.
            new_token_index: its position after the prefix, from 0.
        """
        del token, new_token_index
        return False

    @abstractmethod
    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Say how many tokens of the hypothesis to commit."""

    def take_over(self, committed_word_count: int, committed_token_count: int) -> None:
        """Enter an utterance that another policy has begun. Called once, before anything else.

        Args:
            committed_word_count: words committed so far.
            committed_token_count: tokens committed so far.
        """
        del committed_word_count, committed_token_count

    def pass_by(self, heard: Heard) -> None:
        """Hear that the guards let nothing be written at a segment: what was due then is past.

        Called in place of ``wants_hypothesis``.
        """
        del heard

    def forget_prefix(self, token_count: int) -> None:
        """Hear that history selection has dropped the first tokens of the forced prefix.

        Args:
            token_count: how many, 1 or more.
        """
        del token_count

    def snapshot(self) -> Snapshot:
        """Return the policy's memory as plain JSON values."""
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        """Take over a memory returned by ``snapshot``.

        Raises:
            ValueError: it is not such a memory.
        """
        if snapshot:
            raise ValueError(f"{self.name} has no memory, got {sorted(snapshot)}")


def longest_common_prefix_tokens(sequences: Sequence[Sequence[int]]) -> int:
    """Return how many leading tokens all sequences share; 0 when there are none."""
    length = 0
    for items in zip(*sequences, strict=False):
        if len(set(items)) != 1:
            break
        length += 1
    return length
