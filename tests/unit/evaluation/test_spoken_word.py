"""Which word was spoken where a unit attends to."""

from __future__ import annotations

import json

import pytest

from earvoice.evaluation.log import (
    LogError,
    ReadingOptions,
    Record,
    SpokenWord,
    place_spoken_words,
    read_spoken_words,
    word_at,
)
from earvoice.evaluation.log_formats import read_log
from earvoice.evaluation.metrics import score_corpus
from tests.unit.evaluation.session import short_session

WORDS = (SpokenWord("an", 100, 300), SpokenWord("old", 350, 700), SpokenWord("house", 700, 1600))


def write_words(path, *lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def read_short_session():
    record = Record("log", short_session())
    return read_log(None, [record], ReadingOptions())


@pytest.mark.parametrize(
    ("position_ms", "text"),
    [
        (50, "an"),
        (300, "an"),
        (340, "an"),
        (360, "old"),
        (700, "old"),
        (701, "house"),
        (9e9, "house"),
    ],
)
def test_the_word_at_the_end_of_the_attended_audio(position_ms, text):
    """The end is not part of the audio, so a word that begins there has not been heard."""
    assert word_at(position_ms, WORDS).word == text


def test_spoken_lag_is_release_minus_the_words_end():
    """Three units attend to 100, 100 and 1800 ms: to "an", "an" and "house"."""
    log = place_spoken_words(read_short_session(), [WORDS])
    rows = score_corpus(log.instances).rows
    assert rows["spoken lag"]["ideal"].value == pytest.approx((700 + 700 + 400) / 3)
    assert rows["word lag"]["ideal"].value == pytest.approx((900 + 900 + 200) / 3)
    assert rows["spoken lag"]["simuleval"].value is None


def test_words_are_read_a_list_a_line(tmp_path):
    """The layout of test sets."""
    entry = {"word": "an", "start_ms": 100, "end_ms": 300}
    path = write_words(tmp_path / "words.jsonl", [entry], [])
    assert read_spoken_words(path) == [(SpokenWord("an", 100, 300),), ()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({}, "must be a list"),
        ([1], "must be objects"),
        ([{"word": "a", "start_ms": 1}], "end_ms is missing"),
        (
            [{"word": "a", "start_ms": 5, "end_ms": 6}, {"word": "b", "start_ms": 1, "end_ms": 2}],
            "before the word before it",
        ),
    ],
)
def test_bad_words_are_told(tmp_path, line, message):
    """File and line are named."""
    with pytest.raises(LogError, match=rf"words.jsonl:1: .*{message}"):
        read_spoken_words(write_words(tmp_path / "words.jsonl", line))


def test_words_must_be_of_this_test_set():
    """As many lists as recordings."""
    with pytest.raises(LogError, match="2 lists were given for 1 recordings"):
        place_spoken_words(read_short_session(), [WORDS, WORDS])
