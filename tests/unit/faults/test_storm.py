"""A storm is the same for the same seed, and what fails of it is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.storm import Planned, draw_schedule, shortest


def test_a_seed_says_what_happens():
    """The same again for the same seed; another seed, another storm; every kind is drawn."""
    first = draw_schedule(1, 600)
    assert first == draw_schedule(1, 600)
    assert first != draw_schedule(2, 600)
    assert len(first) > 60
    kinds = {type(p.fault).__name__ for seed in range(10) for p in draw_schedule(seed, 600)}
    assert len(kinds) == 10, kinds


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
async def test_only_the_guilty_remain(size: int, data: st.DataObject):
    """Whichever faults it takes together, those and no others are left, in their order."""
    schedule = draw_schedule(3, 1200)[:size]
    assert len(schedule) == size
    places = st.sets(st.integers(0, size - 1), min_size=1, max_size=min(3, size))
    guilty = data.draw(places)

    async def flaws(some: Sequence[Planned]) -> bool:
        return all(any(schedule[place] is planned for planned in some) for place in guilty)

    kept = await shortest(schedule, flaws)
    assert [*map(id, kept)] == [id(schedule[place]) for place in sorted(guilty)]
