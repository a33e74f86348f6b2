"""A disturbed stream beside the same recording undisturbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from earvoice.client import CommittedWord, EndOfUtterance
from tests.faults.listener import CatchUp, Heard

# Shorter repeats are language: "sehr, sehr".
SHORTEST_REPEAT_WORDS = 3


@dataclass(frozen=True)
class Comparison:
    """What a disturbance did to the words of a stream.

    Attributes:
        lost: words that are missing.
        doubled: words that are there once too often, or that the undisturbed run never said.
        flaws: what else is wrong, in words for people.
    """

    lost: int
    doubled: int
    flaws: tuple[str, ...]


def compare(heard: Heard, reference: Heard, catch_up: CatchUp) -> Comparison:
    """Compare by the text where it is known: in EVERY_SEGMENT, and where nothing was merged."""
    unmerged = heard.summary is not None and heard.summary.merged_segments == 0
    if catch_up == "every-segment" or unmerged:
        return compare_texts(heard, reference)
    return compare_audio(heard, reference)


def compare_texts(heard: Heard, reference: Heard) -> Comparison:
    """Compare word for word."""
    said, expected = ([_identity(w) for w in h.words] for h in (heard, reference))
    matcher = SequenceMatcher(None, expected, said, autojunk=False)
    common = sum(block.size for block in matcher.get_matching_blocks())
    return Comparison(
        max(len(expected) - common, _untold(heard)), len(said) - common, find_flaws(heard)
    )


def compare_audio(heard: Heard, reference: Heard) -> Comparison:
    """Compare by what was decided: every sample in one utterance, no word again.

    Lost are the reference's words in audio that nobody decided, and words that the server counts
    and the client never got; doubled are words in audio that was decided twice, or again said.
    """
    in_holes = sum(_decisions(word, heard.ends) == 0 for word in reference.words)
    decided_twice = sum(_decisions(word, heard.ends) > 1 for word in heard.words)
    repeated = count_repeated(heard.words) - count_repeated(reference.words)
    return Comparison(
        max(in_holes, _untold(heard)),
        max(decided_twice, repeated, -_untold(heard)),
        find_flaws(heard),
    )


def find_flaws(heard: Heard) -> tuple[str, ...]:
    """Say where utterances leave audio out or share it, and whether words come out of order."""
    delays_ms = [word.delay_ms for word in heard.words]
    backwards = [
        f"released at {b:.0f} ms after {a:.0f} ms" for a, b in pairwise(delays_ms) if a > b
    ]
    return (*_find_holes(heard), *backwards)


def _find_holes(heard: Heard) -> tuple[str, ...]:
    if heard.summary is None:
        return ()
    borders = [0.0, *(border for end in heard.ends for border in (end.start_ms, end.end_ms))]
    borders.append(heard.summary.audio_ms)
    joints = list(zip(borders[::2], borders[1::2], strict=True))
    return tuple(
        f"utterance to {left:.0f} ms, next from {right:.0f} ms"
        for left, right in joints
        if left != right
    )


def count_repeated(words: Sequence[CommittedWord]) -> int:
    """Count the words that stand in a run which repeats the run right before it."""
    texts = [word.text for word in words]
    repeated: set[int] = set()
    for size in range(SHORTEST_REPEAT_WORDS, len(texts) // 2 + 1):
        for start in range(len(texts) - 2 * size + 1):
            if texts[start : start + size] == texts[start + size : start + 2 * size]:
                repeated |= set(range(start + size, start + 2 * size))
    return len(repeated)


def _identity(word: CommittedWord) -> tuple[str, bool, int]:
    return word.text, word.starts_word, word.utterance


def _untold(heard: Heard) -> int:
    """Words that the server counts beyond those that came; negative where more came."""
    return heard.summary.item_count - len(heard.words) if heard.summary else 0


def _decisions(word: CommittedWord, ends: Sequence[EndOfUtterance]) -> int:
    middle_ms = (word.source_start_ms + word.source_end_ms) / 2
    return sum(end.start_ms <= middle_ms < end.end_ms for end in ends)
