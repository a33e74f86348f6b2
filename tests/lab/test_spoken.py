"""Written English to spoken English."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.corpus.spoken import cardinal, ordinal, spoken_form, transcript


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (19, "nineteen"),
        (42, "forty two"),
        (342, "three hundred forty two"),
        (2_000_017, "two million seventeen"),
    ],
)
def test_cardinal(number: int, words: str) -> None:
    """Whole numbers are read as English counts them."""
    assert cardinal(number) == words


@pytest.mark.parametrize(
    ("number", "words"), [(1, "first"), (12, "twelfth"), (20, "twentieth"), (21, "twenty first")]
)
def test_ordinal(number: int, words: str) -> None:
    """Only the last word of an ordinal changes."""
    assert ordinal(number) == words


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It costs $4.50.", "It costs four dollars and fifty cents."),
        ("at 8:30am", "at eight thirty a m"),
        ("at 9:05", "at nine oh five"),
        ("at 7:00.", "at seven o'clock."),
        ("around 9pm", "around nine p m"),
        ("call 555-113-4249.", "call five five five one one three four two four nine."),
        ("in 1999", "in nineteen ninety nine"),
        ("my 2011 Rogue", "my twenty eleven Rogue"),
        ("on the 8th", "on the eighth"),
        ("4.4 stars", "four point four stars"),
        ("12,500 people", "twelve thousand five hundred people"),
        ("50% off", "fifty percent off"),
    ],
)
def test_spoken_form(written: str, spoken: str) -> None:
    """Prices, times, telephone numbers, years and symbols become words; punctuation stays."""
    assert spoken_form(written) == spoken


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=60))
def test_transcripts_hold_letters_only(text: str) -> None:
    """Whatever is written, a transcript is lower-case words of a to z and apostrophes."""
    result = transcript(spoken_form(text))
    assert set(result) <= set("abcdefghijklmnopqrstuvwxyz' ")
    assert result == " ".join(result.split())
