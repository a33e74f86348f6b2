"""What one epoch holds: single sentences, joined sentences, real clips, and noise."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.training.recipe import TrainingRecipe


@dataclass(frozen=True)
class SpokenClip:
    """A training clip: its place in the pool, its conversation and its length.

    Attributes:
        index: place in the pool of clips.
        group: clips of one group follow each other in one conversation.
        frames: length in frames of 10 ms.
        translated: whether a translation exists.
        repeats: how often it is heard in an epoch.
    """

    index: int
    group: str
    frames: int
    translated: bool
    repeats: int = 1


@dataclass(frozen=True)
class Example:
    """One input of the network.

    Attributes:
        clips: pool indices, spoken one after the other; empty for noise alone.
        frames: expected length in frames, pauses included.
        seed: seed of everything that is drawn while it is made.
        heard_share: of the last clip's words; below 1 the input is cut off behind them.
    """

    clips: tuple[int, ...]
    frames: int
    seed: int
    heard_share: float = 1.0


def plan_epoch(
    pool: Sequence[SpokenClip], epoch: int, joined_share: float, recipe: TrainingRecipe
) -> list[Example]:
    """Return the examples of one epoch; the same arguments give the same examples.

    Joined examples hold neighbours of the pool (turns of one dialogue, mostly) until a length
    drawn from `joined_frames` is reached, never more than `maximum_frames`. Noise alone comes
    in proportion to joined examples: a network that cannot read yet learns nothing from it.
    """
    generator = random.Random(f"{recipe.seed}/{epoch}")
    examples = []
    for row in _shuffled_groups([clip for clip in pool if clip.translated], generator):
        examples += _join_row(row, joined_share, generator, recipe)
    edges = recipe.edge_frames[1]
    for clip in pool:
        if not clip.translated:
            examples += [
                Example((clip.index,), clip.frames + edges, generator.getrandbits(63))
                for _ in range(clip.repeats)
            ]
    empty_share = recipe.empty_share * joined_share / recipe.joined_share
    for _ in range(round(empty_share * len(examples))):
        frames = generator.randint(100, recipe.joined_frames[1])
        examples.append(Example((), frames, generator.getrandbits(63)))
    return examples


def _shuffled_groups(
    pool: Sequence[SpokenClip], generator: random.Random
) -> list[list[SpokenClip]]:
    """Return rows of four groups each, in shuffled order; the order within a group stays.

    A group is there as often as its clips are to be heard.
    """
    groups: dict[str, list[SpokenClip]] = {}
    for clip in pool:
        groups.setdefault(clip.group, []).append(clip)
    names = [name for name in sorted(groups) for _ in range(groups[name][0].repeats)]
    generator.shuffle(names)
    rows = [names[start : start + 4] for start in range(0, len(names), 4)]
    return [[clip for name in row for clip in groups[name]] for row in rows]


def _join_row(
    row: list[SpokenClip], joined_share: float, generator: random.Random, recipe: TrainingRecipe
) -> list[Example]:
    pause, edges = sum(recipe.pause_frames) // 2, recipe.edge_frames[1]
    examples = []
    position = 0
    while position < len(row):
        chosen, frames = [row[position].index], row[position].frames + edges
        position += 1
        if generator.random() < joined_share:
            wanted = generator.randint(*recipe.joined_frames)
            while position < len(row) and frames < wanted:
                longer = frames + pause + row[position].frames
                if longer > recipe.maximum_frames:
                    break
                chosen.append(row[position].index)
                frames = longer
                position += 1
        if frames <= recipe.maximum_frames:
            examples.append(Example(tuple(chosen), frames, generator.getrandbits(63)))
    return examples
