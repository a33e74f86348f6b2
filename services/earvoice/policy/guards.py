"""Guards: limits on what may be committed. They outrank every policy and the final commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from earvoice.policy.decisions.base import Hypothesis

MINIMUM_LABEL_COUNT = 2
MINIMUM_FRAME_COUNT = 20
WORDS_PER_SOURCE_WORD = 2
ADDITIONAL_WORD_COUNT = 3
LOOP_REPETITION_COUNT = 3
LONGEST_LOOP_TOKENS = 12


@dataclass(frozen=True)
class Allowance:
    """What the guards leave of a commit.

    Attributes:
        token_count: new tokens that may be committed.
        guard: name of the guard that cut it; empty when none did.
    """

    token_count: int
    guard: str = ""


@dataclass(frozen=True)
class GuardEvidence:
    """What the guards look at.

    Attributes:
        label_count: non-blank CTC labels of the utterance, repeats collapsed.
        frame_count: feature frames of 10 ms heard.
        source_word_count: source words heard, a partial one included.
        committed_word_count: words committed in the utterance.
        has_speech: whether voice activity was found.
        has_labels: whether the model tells labels at all; without them speech must do.
    """

    label_count: int
    frame_count: int
    source_word_count: int
    committed_word_count: int
    has_speech: bool
    has_labels: bool = True


class Guards:
    """Cuts commits and counts how often each guard did.

    Args:
        hits: counted before.

    Attributes:
        hits: times each guard cut a commit, by its name.
    """

    def __init__(self, hits: Mapping[str, int] | None = None) -> None:
        self.hits: Counter[str] = Counter(hits)

    def allow(
        self, evidence: GuardEvidence, hypothesis: Hypothesis, new_token_count: int
    ) -> Allowance:
        """Return how many of the new tokens may be committed, at most ``new_token_count``."""
        if new_token_count <= 0:
            return Allowance(0)
        limits = {
            "evidence": 0 if self.lacks_evidence(evidence) else new_token_count,
            "length": _count_within_length(evidence, hypothesis, new_token_count),
            "loop": _count_before_loop(hypothesis, new_token_count),
        }
        strictest = min(limits, key=lambda name: limits[name])
        if limits[strictest] == new_token_count:
            return Allowance(new_token_count)
        self.hits[strictest] += 1
        return Allowance(limits[strictest], strictest)

    @staticmethod
    def lacks_evidence(evidence: GuardEvidence) -> bool:
        """Say whether too little was heard for any commit."""
        return (
            not evidence.has_speech
            or (evidence.has_labels and evidence.label_count < MINIMUM_LABEL_COUNT)
            or evidence.frame_count < MINIMUM_FRAME_COUNT
        )

    def note(self, name: str) -> None:
        """Count a limit that was met elsewhere, such as the hypothesis's length."""
        self.hits[name] += 1


def _count_within_length(
    evidence: GuardEvidence, hypothesis: Hypothesis, new_token_count: int
) -> int:
    """Keep at most twice the words heard plus three."""
    limit = WORDS_PER_SOURCE_WORD * evidence.source_word_count + ADDITIONAL_WORD_COUNT
    room = limit - evidence.committed_word_count
    for index, token in enumerate(hypothesis.tokens[:new_token_count]):
        room -= token.starts_word
        if room < 0:
            return index
    return new_token_count


def _count_before_loop(hypothesis: Hypothesis, new_token_count: int) -> int:
    """Keep what comes before an n-gram is said once more than allowed."""
    tokens = hypothesis.token_ids
    first = len(hypothesis.prefix)
    for end in range(first + 1, first + new_token_count + 1):
        if _ends_in_loop(tokens, end):
            return end - first - 1
    return new_token_count


def _ends_in_loop(tokens: Sequence[int], end: int) -> bool:
    """Say whether tokens[:end] ends in one n-gram repeated too often."""
    for size in range(1, LONGEST_LOOP_TOKENS + 1):
        span = size * (LOOP_REPETITION_COUNT + 1)
        if span > end:
            return False
        window = tokens[end - span : end]
        if window[size:] == window[:-size]:
            return True
    return False
