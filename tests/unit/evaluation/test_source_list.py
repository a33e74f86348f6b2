"""A test set is checked before anything runs."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from earvoice.cli.command import CommandError, ExitCode
from earvoice.evaluation.log import read_lines
from earvoice.evaluation.source_set import (
    add_source_arguments,
    read_source_set,
    read_sources,
    read_texts,
)

soundfile = pytest.importorskip("soundfile")


@pytest.fixture
def listing(tmp_path):
    """Return a writer of a list beside a recording of 100 ms and one without audio."""
    soundfile.write(tmp_path / "a.wav", np.zeros(1600, np.int16), 16_000)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0, np.int16), 16_000)
    (tmp_path / "text.wav").write_text("no audio")

    def listing(text):
        path = tmp_path / "wavs.txt"
        path.write_text(text)
        return path

    return listing


def test_recordings_lie_beside_their_list(listing):
    """Paths are taken as they stand, else from the list's folder; lines keep their order."""
    path = listing("a.wav\na.wav\n")
    first, second = read_sources(path, ["eins", "zwei"])
    assert first.path == path.parent / "a.wav"
    assert first.duration_ms == 100
    assert (second.index, second.reference) == (1, "zwei")


@pytest.mark.parametrize(
    ("text", "references", "message"),
    [
        ("missing.wav\n", None, r"wavs.txt:1: .*missing.wav: no such file"),
        ("a.wav\ntext.wav\n", None, r"wavs.txt:2: .*cannot be read as a recording"),
        ("empty.wav\n", None, "has no audio"),
        ("a.wav\n", ["eins", "zwei"], "lists 1 recordings, but there are 2 references"),
        ("a.wav\n\na.wav\n", None, "wavs.txt:2: the line is empty"),
        ("", None, "is empty"),
    ],
)
def test_bad_input_is_told_with_its_line(listing, text, references, message):
    """The message names the line, the exit status says that the input is wrong."""
    with pytest.raises(CommandError, match=message) as caught:
        read_sources(listing(text), references)
    assert caught.value.exit_code == ExitCode.INPUT


def test_other_sound_of_the_same_length_is_another_set(listing):
    """A run that has begun must not go on with it."""
    parser = argparse.ArgumentParser()
    add_source_arguments(parser)
    path = listing("a.wav\n")
    options = parser.parse_args(["--source", str(path)])
    before = read_source_set(options).settings
    assert read_source_set(options).settings == before
    soundfile.write(path.parent / "a.wav", np.ones(1600, np.int16), 16_000)
    assert read_source_set(options).settings != before


def test_a_list_that_cannot_be_read_is_told(tmp_path):
    """A missing file is bad input as well."""
    with pytest.raises(CommandError, match="cannot be read"):
        read_lines(tmp_path / "nothing.txt")


def test_a_text_is_its_own_source(listing):
    """A sentence a line, a quarter of a second a word."""
    first, second = read_texts(listing("to be\nor not to be\n"), ["eins", "zwei"])
    assert (first.text, first.duration_ms, first.reference) == ("to be", 500, "eins")
    assert (second.index, second.text) == (1, "or not to be")
    assert not first.is_same(second)
    with pytest.raises(CommandError, match="has 1 sentences, but there are 2 references"):
        read_texts(listing("to be\n"), ["eins", "zwei"])
    with pytest.raises(CommandError, match=r"wavs.txt:1: the line is empty"):
        read_texts(listing(" \n"), None)
