"""Transcripts that take the place of heard speech."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.training.recipe import TextRecipe
from earvoice.training.text_data import mishear

pytestmark = pytest.mark.torch
BLANK = 50
PIECES = st.lists(st.integers(4, BLANK - 1), max_size=30)


@given(PIECES, st.integers(0, 1_000))
def test_neighbours_differ_as_in_compressed_transcripts(pieces: list[int], seed: int) -> None:
    """Runs are merged by compression, so no label stands twice in a row."""
    heard = mishear(pieces, BLANK, TextRecipe(), random.Random(seed))
    assert all(a != b for a, b in pairwise(heard))
    assert heard[0] == BLANK
    assert heard[-1] == BLANK


@given(PIECES, st.integers(0, 1_000))
def test_nothing_is_misheard_when_no_chance_is_given(pieces: list[int], seed: int) -> None:
    """Without substitutions and drops the pieces stay, blanks aside."""
    recipe = TextRecipe(substitution_chance=0.0, drop_chance=0.0)
    heard = mishear(pieces, BLANK, recipe, random.Random(seed))
    assert [label for label in heard if label != BLANK] == pieces
