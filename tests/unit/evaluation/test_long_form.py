"""A long output is cut to the reference sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from earvoice.cli.command import CommandError
from earvoice.evaluation.instance import Instance, correct_simuleval
from earvoice.evaluation.log import Log, LogError, ReadingOptions
from earvoice.evaluation.long_form import (
    ReferenceSentence,
    read_segmentation,
    resegment,
)
from tests.unit.evaluation.logs import read, segment, simulstream

SENTENCES = (
    ReferenceSentence("talk", 0.0, 2000.0, 5000.0, "Das ist ein Haus."),
    ReferenceSentence("talk", 3000.0, 2000.0, 5000.0, "Dort steht Karl."),
)
WORDS = ["Das", "war", "ein", "Haus.", "Dort", "stand", "Karl."]
DELAYS_MS = (1000.0, 1000.0, 2000.0, 2000.0, 4000.0, 4000.0, 5000.0)


def talk(source="set/talk.wav"):
    instance = Instance(
        name="log:1",
        unit="word",
        source_length_ms=5000.0,
        delays_ms=DELAYS_MS,
        elapsed_ms={"simuleval": tuple(delay + 100.0 for delay in DELAYS_MS)},
        prediction=" ".join(WORDS),
        source_ends_ms=DELAYS_MS,
        source=source,
    )
    return Log("made", (instance,), "rule")


def test_words_go_to_their_sentence_with_times_from_its_start():
    """OmniSTEval says which words belong to a sentence; every clock is cut alike."""
    pytest.importorskip("omnisteval")
    log = resegment(talk(), SENTENCES, ReadingOptions(), "", "omnisteval")
    first, second = log.instances
    assert first.prediction == "Das war ein Haus."
    assert second.prediction == "Dort stand Karl."
    assert second.delays_ms == (1000, 1000, 2000)
    assert second.elapsed_ms["simuleval"] == (1100, 1100, 2100)
    assert (second.source_ends_ms, second.recording_end_ms) == ((1000, 1000, 2000), 2000)
    assert (second.reference, second.reference_units) == ("Dort steht Karl.", 3)
    assert "omnisteval" in log.format_name
    assert any("OmniSTEval corrects" in note for note in log.notes)


def test_a_log_of_simulstream_is_cut_too(tmp_path):
    """It names its recordings, and has a clock `segment` of its own."""
    pytest.importorskip("omnisteval")
    lines = simulstream(segment(2.0, 0.1, ["Das", "ist"]), segment(5.0, 0.2, ["Dort", "Karl."]))
    sentences = [replace(sentence, recording="a") for sentence in SENTENCES]
    log = resegment(read(tmp_path / "log", *lines), sentences, ReadingOptions(), "", "omnisteval")
    assert [part.elapsed_ms["segment"] for part in log.instances] == [(2100, 2100), (2200, 2200)]
    assert not any("OmniSTEval corrects" in note for note in log.notes)


def test_recordings_must_be_those_of_the_segmentation():
    """A recording without output would silently lift the scores."""
    with pytest.raises(LogError, match="recordings other, talk must be both"):
        resegment(talk("set/other.wav"), SENTENCES, ReadingOptions(), "", "omnisteval")


def test_simulevals_clock_is_corrected_as_omnisteval_does():
    """Each unit has its delay and what its own segment added; times never fall."""
    assert correct_simuleval((1000, 1000, 2000), (1300, 1300, 2900)) == (1300, 1300, 2600)
    assert correct_simuleval((), ()) == ()


@pytest.mark.parametrize(
    ("text", "count", "message"),
    [
        ("- {wav: a.wav, offset: 0, duration: 1}\n", 2, "2 references were given for 1 sentences"),
        ("- {wav: a.wav, offset: 0}\n", 1, "entry 1: .*must have wav"),
        ("- {wav: a.wav, offset: 0, duration: 0}\n", 1, "entry 1: .*above 0"),
        ("a: [\n", 1, "is not YAML"),
        ("{}\n", 1, "must be a list"),
    ],
)
def test_a_bad_segmentation_is_told(tmp_path, text, count, message):
    """File and entry are named."""
    pytest.importorskip("yaml")
    path = tmp_path / "segments.yaml"
    path.write_text(text)
    with pytest.raises(LogError, match=message):
        read_segmentation(path, ["x"] * count)


def test_a_segmentation_that_is_not_there_is_told(tmp_path):
    """As any other input."""
    pytest.importorskip("yaml")
    with pytest.raises(LogError, match=r"nowhere\.yaml: cannot be read"):
        read_segmentation(tmp_path / "nowhere.yaml", ["x"])


def test_sentences_of_a_recording_stand_together(tmp_path):
    """They are numbered within it."""
    pytest.importorskip("yaml")
    path = tmp_path / "segments.yaml"
    path.write_text("".join(f"- {{wav: {n}.wav, offset: 0, duration: 1}}\n" for n in "aba"))
    with pytest.raises(LogError, match="must stand together"):
        read_segmentation(path, ["x"] * 3)


def test_stream_laal_by_word_errors():
    """Where somebody has installed mweralign: its cut of the same two sentences."""
    pytest.importorskip("mweralign")
    log = resegment(talk(), SENTENCES, ReadingOptions(), "", "mweralign")
    assert [part.prediction for part in log.instances] == ["Das war ein Haus.", "Dort stand Karl."]


def test_a_sentence_without_words_cannot_be_cut_by_word_errors():
    """It leaves it out of its answer: the message says who can."""
    pytest.importorskip("mweralign")
    sentences = (SENTENCES[0], replace(SENTENCES[1], text=""))
    with pytest.raises(CommandError, match=r"1 lines for 2 sentences .*omnisteval"):
        resegment(talk(), sentences, ReadingOptions(), "", "mweralign")
