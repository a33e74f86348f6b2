"""StreamAtt's history selection: what to keep of an endless utterance (Papi 2024).

It chooses the text first, then the audio: audio that no kept token attends to is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from earvoice.policies.base import Hypothesis, Token
from earvoice.policy.evidence import Evidence
from earvoice.policy.stream_options import HistorySelection
from earvoice.runtime.punctuation import SENTENCE_ENDS

STRONG_PUNCTUATION = tuple(mark.encode() for mark in (*SENTENCE_ENDS, ":", ";"))
"""That of the released code, and other scripts' forms of it."""

LONGEST_SENTENCE_TOKENS = 100
"""A sentence without an end is cut at this length, as in the released code."""


def forgotten_history(
    selection: HistorySelection,
    committed: Sequence[Token],
    hypothesis: Hypothesis,
    prefix_rows: Sequence[Sequence[float]],
    evidence: Evidence,
    start_sample: int,
    spoken_for_sample: int,
) -> tuple[int, int] | None:
    """Return what to forget after a commit (Papi 2024): how many tokens, and audio up to where.

    None to keep everything.

    As in the released code, every token that is not dropped keeps its audio: the committed ones
    and the uncommitted rest of the hypothesis.

    Args:
        committed: the forced prefix, the new commit included.
        prefix_rows: cross-attention of the hypothesis's prefix tokens, ``[S]`` each.
        start_sample: where the first state begins.
        spoken_for_sample: committed tokens attend to audio up to here; if no token is left, audio
            is kept from here on.
    """
    dropped = dropped_token_count(selection, committed)
    if not dropped:
        return None
    if len(prefix_rows) != len(hypothesis.prefix):
        raise RuntimeError(
            f"the decoder sent {len(prefix_rows)} rows for {len(hypothesis.prefix)} tokens"
        )
    rows = [*prefix_rows, *(token.attention for token in hypothesis.tokens)]
    place = first_attended_sample(rows[dropped:], evidence, start_sample)
    return dropped, spoken_for_sample if place is None else place


def dropped_token_count(selection: HistorySelection, committed: Sequence[Token]) -> int:
    if isinstance(selection, int):
        return _count_before_last_words(committed, selection)
    kept_from = _count_before_last_sentence(committed)
    if len(committed) - kept_from <= LONGEST_SENTENCE_TOKENS:
        return kept_from
    kept_from = len(committed) - LONGEST_SENTENCE_TOKENS
    while kept_from < len(committed) and not committed[kept_from].starts_word:
        kept_from += 1
    return kept_from


def first_attended_sample(
    rows: Sequence[Sequence[float]], evidence: Evidence, start_sample: int
) -> int | None:
    """Take the state each token attends to most; return where the earliest of these begins.

    Args:
        rows: cross-attention of the kept tokens, ``[S]`` each. The last state is left out:
            attention piles up on it whatever the token.
        start_sample: where the first state begins.

    Returns:
        The position; None when there is nothing to go by.
    """
    states = [evidence.attended(row) for row in rows if len(row) > 1]
    if not states:
        return None
    return evidence.span(min(states), start_sample)[0]


def _count_before_last_words(committed: Sequence[Token], word_count: int) -> int:
    for index in range(len(committed) - 1, -1, -1):
        word_count -= committed[index].starts_word
        if word_count == 0:
            return index
    return 0


def _count_before_last_sentence(committed: Sequence[Token]) -> int:
    """A mark inside a word, as in 3.5, ends nothing: the next token must begin a word."""
    for index in range(len(committed), 0, -1):
        is_border = index == len(committed) or committed[index].starts_word
        if is_border and committed[index - 1].text.endswith(STRONG_PUNCTUATION):
            return index
    return 0
