"""What the tools say and hear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.adapter.tool_text import (
    DEFAULT_SERVER,
    choose_session,
    write_tokens,
)
from earvoice.client.event import CommittedWord, join_words
from earvoice.policies import Edatt
from earvoice.runtime.audio_format import AudioFormat


def test_nothing_said_is_the_default_of_everything_but_catch_up():
    """The tools wait for each segment."""
    server, options = choose_session("")
    assert server == DEFAULT_SERVER
    assert options.policy is None
    assert options.catch_up == "every-segment"
    assert options.audio == AudioFormat("float32", 16_000)


def test_the_arguments_of_the_command_are_understood():
    """Server, language, policy, stream; quotes as in a shell."""
    server, options = choose_session(
        "--server 'host:1' --to fr --policy edatt:alpha=0.3 --segment-ms 400 --no-endpointing"
    )
    assert server == "host:1"
    assert options.target_languages == ("fr",)
    assert options.policy == Edatt(alpha=0.3)
    assert options.segment_ms == 400
    assert options.endpointing.disabled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--tempo 3", "unrecognized arguments: --tempo 3"),
        ("--segment-ms long", "'long' is not allowed"),
        ("--policy cif", "policy = 'cif' is not allowed"),
        ("--catch-up merge", "--catch-up merge is not allowed"),
    ],
)
def test_what_is_wrong_is_told(text, message):
    """An error to be caught, never an exit of the foreign tool."""
    with pytest.raises(ValueError, match=message):
        choose_session(text)


def word(text: str, *, starts: bool = True) -> CommittedWord:
    return CommittedWord(text, starts, "de", 0, 0.0, 1.0, 1.0, 1.0, 1.0)


def test_a_later_piece_stands_right_behind_its_word():
    """Blanks only before what begins a word."""
    assert join_words([word("das"), word("Fenster"), word(".", starts=False)]) == "das Fenster."
    assert join_words([]) == ""


def test_a_later_piece_writes_its_word_anew():
    """Words stay whole: simulstream can take tokens back."""
    first = [word("das"), word("Fenster")]
    assert write_tokens("", first) == ([], ["das", "Fenster"], "Fenster")
    assert write_tokens("Fenster", []) == ([], [], "Fenster")
    pieces = [word(".", starts=False), word("Es")]
    assert write_tokens("Fenster", pieces) == (["Fenster"], ["Fenster.", "Es"], "Es")
    assert write_tokens("Es", [word("ist")]) == ([], ["ist"], "ist")


WORDS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4), max_size=6)


@given(WORDS)
def test_tokens_are_the_words_however_they_come(released):
    """What is left after all deletions is the text."""
    last, tokens, words = "", [], []
    for group in released:
        items = [word(text, starts=starts) for text, starts in group]
        words += items
        deleted, new, last = write_tokens(last, items)
        if deleted:
            assert tokens[-len(deleted) :] == deleted
            del tokens[-len(deleted) :]
        tokens += new
    assert " ".join(tokens) == join_words(words)
