"""The log of ``earvoice translate --format jsonl``."""

from __future__ import annotations

import pytest

from earvoice.evaluation.log import LogError
from earvoice.evaluation.metrics import score_corpus
from tests.unit.evaluation.logs import item, read, utterance_end

WORDS = [
    item("Guten", 1000.0, 1200.0),
    item("Mor", 2000.0, 2300.0),
    item("gen", 3000.0, 3400.0, starts_word=False),
    item("Welt", 5000.0, 5100.0, utterance=1),
]
BORDERS = [utterance_end(0, 0.0, 3000.0), utterance_end(1, 3000.0, 6000.0)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def test_pieces_become_words(path):
    """A word is released with its last piece."""
    (instance,) = read(path, *WORDS, *BORDERS, elapsed_clock="live").instances
    assert instance.prediction == "Guten Morgen Welt"
    assert instance.delays_ms == (1000, 3000, 5000)
    assert instance.elapsed_ms == {"live": (1200, 3400, 5100)}
    assert instance.source_length_ms == 6000


def test_lagging_without_reference_is_by_utterance(path):
    """LAAL* starts anew with each utterance; LAAL does not."""
    rows = score_corpus(read(path, *WORDS, *BORDERS).instances).rows
    assert rows["LAAL*"]["ideal"].value == pytest.approx(((1000 + 3000 - 1500) / 2 + 2000) / 2)
    assert rows["LAAL*"]["ideal"].count == 2
    assert rows["LAAL"]["ideal"].value == pytest.approx((1000 + 1000 + 1000) / 3)


def test_word_lag_is_ideal_and_live(path):
    """Release less the end of the source, 300 ms before the delay here."""
    rows = score_corpus(read(path, *WORDS, *BORDERS, elapsed_clock="live").instances).rows
    assert rows["word lag"]["ideal"].value == pytest.approx(300)
    assert rows["word lag"]["live"].value == pytest.approx(300 + (200 + 400 + 100) / 3)


@pytest.mark.parametrize("clock", ["live", "true"])
def test_the_log_tells_its_clock(path, clock):
    """Every item names the clock of its elapsed time."""
    timed = item("Ja", 1000.0, 1100.0, elapsed_clock=clock)
    (instance,) = read(path, timed, BORDERS[0]).instances
    assert instance.elapsed_ms == {clock: (1100,)}


def test_an_unsaid_clock_is_left_out_aloud(path):
    """Numbers on an unknown clock would be compared with anything."""
    log = read(path, *WORDS, *BORDERS)
    assert log.instances[0].elapsed_ms == {}
    assert any("--elapsed-clock live" in note for note in log.notes)


def test_characters(path):
    """Each character has the time of its item."""
    (instance,) = read(path, *WORDS[:2], *BORDERS, unit="char").instances
    assert instance.delays_ms == (1000,) * 5 + (2000,) * 3


def test_a_recording_of_unknown_length_is_refused(path):
    """Neither the recording nor the end of an utterance is there."""
    with pytest.raises(LogError, match=r"'a\.wav': nobody knows how long.*no utterance ends"):
        read(path, *WORDS)


def test_a_file_that_cannot_be_read_here_does_not_hide_what_the_log_tells(path):
    """A text has no length of its own, and what only ffmpeg reads tells none either."""
    path.with_name("a.wav").write_text("Good morning.")
    (instance,) = read(path, *WORDS, *BORDERS).instances
    assert instance.source_length_ms == 6000
    with pytest.raises(LogError, match=r"nobody knows how long.*no utterance ends"):
        read(path, *WORDS)


def test_the_recording_tells_its_length(path):
    """It lies beside the log."""
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    soundfile.write(path.with_name("a.wav"), [0.0] * 8000 * 7, 8000)
    log = read(path, *WORDS)
    assert log.instances[0].source_length_ms == 7000
    assert any("where utterances end" in note for note in log.notes)
