"""Batches of examples of similar length."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earvoice.training.example import Example


def make_batches(examples: Sequence[Example], batch_frames: int, seed: int) -> list[list[Example]]:
    """Group examples so that the padded frames of a batch stay within `batch_frames`.

    Lengths are blurred by a tenth before sorting, so that batches differ between epochs; an
    example longer than `batch_frames` makes a batch alone. The batches come in shuffled order.
    """
    generator = random.Random(seed)
    ordered = sorted(examples, key=lambda example: example.frames * generator.uniform(0.95, 1.05))
    batches: list[list[Example]] = []
    longest = 0
    for example in ordered:
        longest = max(longest, example.frames)
        if not batches or longest * (len(batches[-1]) + 1) > batch_frames:
            batches.append([])
            longest = example.frames
        batches[-1].append(example)
    generator.shuffle(batches)
    return batches
