"""Wait-k: stay k words behind the source (Ma 2019; Papi 2022, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from earvoice.policy.decisions.base import (
    Decision,
    DecisionPolicy,
    Heard,
    Hypothesis,
    Token,
)
from earvoice.policy.decisions.schedule import passed_units
from earvoice.policy.decisions.snapshot import Snapshot, integer_in

WORD_DURATION_MS = 280.0
"""Mean duration of an English word (Papi 2022, section 2.1)."""

Detection = Literal["fixed", "adaptive"]
EndWhileReading = Literal["stop", "avoid", "commit"]


@dataclass(frozen=True)
class WaitKParameters:
    """How wait-k decides.

    Attributes:
        k: words to wait, 1 or more.
        detection: ``fixed`` counts a word every 280 ms, ``adaptive`` the words of the greedy CTC
            transcript.
        inclusive: write when w >= p + k (Papi 2022, section 3; Han 2020) instead of w > p + k
            (Papi 2022, section 2.1; released code).
        count_partial_word: whether a last, unfinished source word counts.
        end_while_reading: what an end of sentence before the end of the source does: ``stop``
            ends this segment's hypothesis, ``avoid`` takes the best other token, ``commit`` ends
            the utterance's translation.
    """

    k: int = 3
    detection: Detection = "fixed"
    inclusive: bool = False
    count_partial_word: bool = True
    end_while_reading: EndWhileReading = "stop"


class WaitKPolicy(DecisionPolicy):
    """Writes w - (p + k) words when w source words were heard and p were written."""

    name = "wait_k"

    def __init__(self, parameters: WaitKParameters) -> None:
        self.parameters = parameters
        self.forbids_end_while_reading = parameters.end_while_reading == "avoid"
        self._written_word_count = 0
        self._due_word_count = 0
        self._seen_word_count = 0

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Decode only when a word is due."""
        self._due_word_count = self.due_word_count(heard)
        self._seen_word_count = 0
        return heard.state_count > 0 and self._due_word_count > 0

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Halt at the word after the last one due."""
        if new_token_index == 0:
            self._seen_word_count = 0
        self._seen_word_count += token.starts_word
        return self._seen_word_count > self._due_word_count

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        """Commit the words due; they count as written even if the hypothesis is shorter."""
        due = self.due_word_count(heard)
        if due <= 0:
            return Decision(0)
        self._written_word_count += due
        return words_decision(
            hypothesis, due, commit_end=self.parameters.end_while_reading == "commit"
        )

    def pass_by(self, heard: Heard) -> None:
        """Count the words due as written: a silent beginning is not made up for later."""
        self._written_word_count += max(0, self.due_word_count(heard))

    def due_word_count(self, heard: Heard) -> int:
        """Return how many words are due, possibly negative."""
        ahead = self.source_word_count(heard) - (self._written_word_count + self.parameters.k)
        return ahead + 1 if self.parameters.inclusive else ahead

    def source_word_count(self, heard: Heard) -> int:
        """Return the source words heard, by the detection chosen."""
        if self.parameters.detection == "fixed":
            return passed_units(heard.duration_ms, WORD_DURATION_MS)
        partial = heard.has_partial_word and self.parameters.count_partial_word
        return heard.complete_word_count + int(partial)

    def take_over(self, committed_word_count: int, committed_token_count: int) -> None:
        """Count the words of another policy as written."""
        del committed_token_count
        self._written_word_count = committed_word_count

    def snapshot(self) -> Snapshot:
        """Return the number of words written."""
        return {"written_word_count": self._written_word_count}

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the number of words written.

        Raises:
            ValueError: there is no such number.
        """
        self._written_word_count = integer_in(snapshot, "written_word_count")


def words_decision(hypothesis: Hypothesis, word_count: int, *, commit_end: bool) -> Decision:
    """Take the tokens of the next words: up to the word-initial one that begins one too many."""
    seen = 0
    for index, token in enumerate(hypothesis.tokens):
        seen += token.starts_word
        if token.starts_word and seen > word_count:
            return Decision(index)
    return Decision(len(hypothesis.tokens), ends_utterance=hypothesis.ended and commit_end)
