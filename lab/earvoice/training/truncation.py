"""Truncated inputs: cut off in mid-sentence, with what can be written so far (Niehues 2018)."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from earvoice.models.vocabulary import Vocabulary
    from earvoice.training.example import Example, SpokenClip
    from earvoice.training.recipe import TrainingRecipe


def truncate(
    examples: Sequence[Example], pool: Sequence[SpokenClip], epoch: int, recipe: TrainingRecipe
) -> list[Example]:
    """Cut off `truncated_share` of an epoch's translated examples; the others stay as they are.

    Every moment of an input is as likely, and clips that begin after it are not heard. The same
    arguments give the same examples.
    """
    lengths = {clip.index: clip.frames for clip in pool if clip.translated}
    generator = random.Random(f"{recipe.seed}/{epoch}/truncated")
    return [
        _cut_off(example, lengths, generator, recipe)
        if lengths.keys() & example.clips and generator.random() < recipe.truncated_share
        else example
        for example in examples
    ]


def _cut_off(
    example: Example,
    lengths: Mapping[int, int],
    generator: random.Random,
    recipe: TrainingRecipe,
) -> Example:
    ends = list(accumulate(lengths[clip] for clip in example.clips))
    moment = generator.randrange(ends[-1])
    last = bisect_right(ends, moment)
    length = lengths[example.clips[last]]
    edges = recipe.edge_frames[1]
    return replace(
        example,
        clips=example.clips[: last + 1],
        frames=edges + (example.frames - edges) * (moment + 1) // ends[-1],
        heard_share=1.0 - (ends[last] - moment) / length,
    )


def heard_pieces(ids: list[int], share: float, vocabulary: Vocabulary) -> list[int]:
    """Return the pieces of the words within a share of a transcript, at least the first word's.

    Args:
        ids: pieces of the transcript.
        share: of its words, from 0 to 1.
        vocabulary: of the transcript.
    """
    return _first_words(ids, max(1, int(share * count_words(ids, vocabulary))), vocabulary)


def writable_pieces(
    ids: list[int], heard_words: int, words: int, vocabulary: Vocabulary
) -> list[int]:
    """Return as large a share of a translation's words as was heard, rounded down.

    Args:
        ids: pieces of the translation.
        heard_words: words of the source that were heard.
        words: of the whole source.
        vocabulary: of the translation.
    """
    return _first_words(ids, count_words(ids, vocabulary) * heard_words // words, vocabulary)


def _first_words(ids: list[int], count: int, vocabulary: Vocabulary) -> list[int]:
    words = accumulate(map(vocabulary.starts_word, ids))
    return [piece for piece, word in zip(ids, words, strict=True) if word <= count]


def count_words(ids: list[int], vocabulary: Vocabulary) -> int:
    """Return how many words begin in a row of pieces."""
    return sum(map(vocabulary.starts_word, ids))
