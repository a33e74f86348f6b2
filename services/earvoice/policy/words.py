"""Words made from tokens: where they end, when their text may be released, and their facts.

The decoder says which token begins a word (``starts_word``). Text is examined for one thing only:
whether any of it is spoken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from unicodedata import category

from earvoice.policies.base import Hypothesis
from earvoice.policy.stream_options import CommitUnit

_PART_OF_CHARACTER = "\ufffd"
"""What part of a character is decoded to."""


def committable_count(
    hypothesis: Hypothesis, new_token_count: int, unit: CommitUnit, *, final: bool = False
) -> int:
    """Cut a count of new tokens back to what may be committed at once.

    A word border is a place after which the hypothesis itself begins a new word, or ends.

    Args:
        unit: ``word`` cuts back to a word border of the hypothesis; ``followed-word`` looks at
            no more of it than the policy accepted, so that the last word is never complete
            (the papers' agents 1.1); ``token`` cuts nothing.
        final: nothing will follow, so the hypothesis ends even where a token limit cut it.
    """
    if unit == "token":
        return new_token_count
    tokens, ended = hypothesis.tokens, final or hypothesis.end is not None
    if unit == "followed-word" and not final:
        tokens, ended = tokens[:new_token_count], False
    if new_token_count >= len(tokens) and ended:
        return len(tokens)
    count = min(new_token_count, len(tokens) - 1)
    while count > 0 and not tokens[count].starts_word:
        count -= 1
    return max(count, 0)


@dataclass(frozen=True)
class StageTimings:
    """A released word's time since its segment's last sample arrived, in ms.

    ``total_ms`` is the sum of all the others.
    """

    total_ms: float
    merge_wait_ms: float = 0.0
    previous_segment_wait_ms: float = 0.0
    encoder_queue_ms: float = 0.0
    encoder_compute_ms: float = 0.0
    encoder_network_ms: float = 0.0
    decoder_queue_ms: float = 0.0
    decoder_compute_ms: float = 0.0
    decoder_network_ms: float = 0.0
    decision_ms: float = 0.0
    word_hold_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class CommitTime:
    """When a token was committed, and where the time until then went.

    Attributes:
        elapsed_ms: since the session's first sample existed, on the session's clock.
        moment_ms: the same moment since a fixed one: the first sample may later turn out to be
            older than was estimated when this was committed.
    """

    elapsed_ms: float
    moment_ms: float
    stages: StageTimings
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """A word, or a later piece of the word before, from its first committed token to its release.

    Positions are in the session's samples.

    Attributes:
        utf8: its text; may end inside a character until its last token has come.
        starts_word: whether a blank belongs before it.
        committed: when its last token was.
        log_probability: natural logarithm of the probability of its spoken part.
        confidence: how likely it is right, 0 to 1; set at its release.
        delay_samples: audio received when it was released.
        elapsed_ms: since the first sample existed, on the session's clock, when it was released.
        hold_ms: how long it was held back, for the end of its word or until its utterance was
            understood.
    """

    utf8: bytes
    starts_word: bool
    utterance: int
    source_start_sample: int
    source_end_sample: int
    committed: CommitTime
    log_probability: float = 0.0
    confidence: float = 0.0
    delay_samples: int = 0
    elapsed_ms: float = 0.0
    hold_ms: float = 0.0

    @property
    def text(self) -> str:
        """Without surrounding blanks; invalid bytes are replaced, not dropped."""
        return self.utf8.decode("utf8", errors="replace").strip()

    @property
    def stages(self) -> StageTimings:
        stages = self.committed.stages
        total_ms = stages.total_ms + self.hold_ms
        return replace(stages, total_ms=total_ms, word_hold_ms=self.hold_ms)

    @property
    def is_spoken(self) -> bool:
        """Whether it has letters or figures: nobody hears a comma. Part of a character counts."""
        text = self.utf8.decode("utf8", errors="replace")
        return any(category(each)[0] in "LMN" or each == _PART_OF_CHARACTER for each in text)

    def joined(self, piece: Word) -> Word:
        spoken = [part for part in (self, piece) if part.is_spoken] or [self, piece]
        return Word(
            self.utf8 + piece.utf8,
            self.starts_word,
            self.utterance,
            min(self.source_start_sample, piece.source_start_sample),
            max(self.source_end_sample, piece.source_end_sample),
            piece.committed,
            sum(part.log_probability for part in spoken),
        )


def join_pieces(pieces: Iterable[Word], *, flush: bool) -> tuple[list[Word], Word | None]:
    """Return the words that are complete, and the beginning of one that is held back.

    Args:
        pieces: what was held back before, and a piece for each newly committed token.
        flush: hold nothing back: the last word is known to be complete, or nothing more comes.
    """
    words: list[Word] = []
    for piece in pieces:
        if piece.starts_word or not words:
            words.append(piece)
        else:
            words[-1] = words[-1].joined(piece)
    held = words.pop() if words and not flush else None
    return [word for word in words if word.text], held


def written_text(pieces: Iterable[tuple[bool, bytes]]) -> str:
    """Return the joined text of pieces: whether each begins a word, and its UTF-8 bytes."""
    written = [b" " + text if starts_word else text for starts_word, text in pieces]
    return b"".join(written).decode("utf8", errors="replace").strip()
