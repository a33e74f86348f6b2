"""Logs of the field's tools, and what is refused in them."""

from __future__ import annotations

import pytest

from earvoice.evaluation.log import LogError
from earvoice.evaluation.log_formats import find_log
from earvoice.evaluation.metrics import score_corpus
from tests.unit.evaluation.logs import (
    OMNISTEVAL,
    SIMULEVAL_1_0,
    SIMULEVAL_1_1,
    read,
    segment,
    simulstream,
    write,
)

BLANK = "\N{LOWER ONE EIGHTH BLOCK}"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "instances.log"


def test_simuleval_1_1(path):
    """Its elapsed is on its own clock, its computation ends with the last unit."""
    log = read(path, SIMULEVAL_1_1)
    (instance,) = log.instances
    assert log.format_name.startswith("SimulEval 1.1")
    assert instance.delays_ms == (1000, 2000)
    assert instance.elapsed_ms == {"simuleval": (1100, 2400)}
    assert (instance.reference_units, instance.computation_ms) == (2, 400)


@pytest.mark.parametrize("elapsed", [[0, 0], [0.0, 0.0], None])
def test_a_clock_that_was_not_measured_is_told(path, elapsed):
    """SimulEval logs zeros where it reads text; a time of 0 would be before the word was said."""
    line = {key: SIMULEVAL_1_1[key] for key in SIMULEVAL_1_1 if key != "elapsed"}
    line |= {} if elapsed is None else {"elapsed": elapsed}
    log = read(path, line, line)
    assert not any(instance.elapsed_ms for instance in log.instances)
    assert [instance.computation_ms for instance in log.instances] == [None, None]
    (note,) = log.notes
    assert "elapsed is missing or 0 throughout" in note


def test_segments_in_the_log_tell_the_other_clocks(path):
    """Our own log holds every segment, silent ones too."""
    parts = [
        {"end_ms": 500, "computation_ms": 700, "units": 0},
        {"end_ms": 1000, "computation_ms": 100, "units": 1},
        {"end_ms": 2000, "computation_ms": 300, "units": 1},
    ]
    line = {**SIMULEVAL_1_1, "elapsed": [1310, 2310], "elapsed_clock": "live", "segments": parts}
    (instance,) = read(path, line).instances
    assert instance.elapsed_ms == {
        "simuleval": (1800, 3100),
        "true": (1300, 2300),
        "live": (1310, 2310),
    }
    assert instance.computation_ms == 1100


def test_rounded_delays_are_put_onto_the_end(path):
    """Otherwise average lagging would cut one unit later."""
    (instance,) = read(path, {**SIMULEVAL_1_1, "delays": [1000, 1999.96]}).instances
    assert instance.delays_ms == (1000, 2000)


def test_silence_is_counted_and_skipped(path):
    """An instance without output has no latency, but is told."""
    silent = {**SIMULEVAL_1_1, "prediction": "", "delays": [], "elapsed": []}
    score = score_corpus(read(path, SIMULEVAL_1_1, silent).instances)
    assert (score.instance_count, score.silent_count) == (2, 1)
    assert score.rows["AL"]["simuleval"].count == 1
    nothing = score_corpus(read(path, silent).instances)
    assert nothing.clocks == ("ideal",)
    assert nothing.rows["AL"]["ideal"].value is None


def test_no_reference_leaves_the_hypothesis_length(path):
    """AL and LAAL are then LAAL*."""
    rows = score_corpus(read(path, {**SIMULEVAL_1_1, "reference": ""}).instances).rows
    assert rows["AL"] == rows["LAAL"] == rows["LAAL*"]


def test_simuleval_1_0_counts_the_end_of_sentence(path):
    """As a unit with times, but not as text."""
    log = read(path, SIMULEVAL_1_0)
    (instance,) = log.instances
    assert (instance.unit_count, instance.prediction) == (3, "ein Haus")
    rows = score_corpus(log.instances, simuleval_1_0=log.ends_with_eos).rows
    # d - min(i - 1, m) T / (m + 1) up to the first unit at the end.
    assert rows["AL (SimulEval 1.0)"]["ideal"].value == pytest.approx((1000 + 2000 - 2000 / 3) / 2)
    assert rows["AP (SimulEval 1.0)"]["ideal"].value == pytest.approx(5000 / 6000)


@pytest.mark.parametrize("clock", [None, "segment"])
def test_simuleval_1_0_tells_its_computation_on_any_clock_and_is_not_cut(path, clock):
    """The last unit's; its end of sentence is in no part of a recording."""
    log = read(path, SIMULEVAL_1_0 | {"source": ["a.wav"]}, elapsed_clock=clock)
    (instance,) = log.instances
    assert (instance.computation_ms, instance.source) == (500.0, "")


def test_omnisteval_says_its_clock_in_its_report(path):
    """Corrected times are on the clock of the own segment; without a report nobody knows."""
    log = read(path, OMNISTEVAL)
    assert log.instances[0].elapsed_ms == {}
    assert any("--elapsed-clock" in note for note in log.notes)
    report = path.with_name("evaluation_report.txt")
    report.write_text("OmniSTEval v0.1.7\n  Fix CA emissions   yes\n", encoding="utf8")
    log = read(path, OMNISTEVAL)
    assert log.format_name.startswith("OmniSTEval 0.1.7")
    assert log.instances[0].elapsed_ms == {"segment": (-400, 2900)}
    assert score_corpus(log.instances).rows["ATD"]["ideal"].count == 0


def test_simulstream_words_change_until_their_last_piece(path):
    """A word has the segment that last changed it, on all clocks that a full log can tell."""
    lines = simulstream(
        segment(1.0, 1.5, [f"{BLANK}ein", f"{BLANK}Ha"]),
        segment(2.0, 0.25, ["us"]),
        segment(3.0, 0.25, [f"{BLANK}da"], ["us"]),
    )
    (instance,) = read(path, *lines).instances
    assert instance.prediction == "ein Ha da"
    assert instance.name == "a"
    assert instance.source_length_ms == 3000
    assert instance.delays_ms == (1000, 3000, 3000)
    assert instance.elapsed_ms == {
        "simuleval": (2500, 5000, 5000),
        "true": (2500, 3250, 3250),
        "segment": (2500, 3250, 3250),
    }
    assert instance.computation_ms == 2000


def test_simulstream_whole_words(path):
    """Tokens without SentencePiece's sign are words; characters are joined without blanks."""
    lines = simulstream(segment(1.0, 0.1, ["a", "b"]), segment(2.0, 0.1))
    assert read(path, *lines).instances[0].prediction == "a b"
    assert read(path, *lines, unit="char").instances[0].prediction == "ab"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delays": [1000.0]}, "prediction has 2 units .word., delays has 1.*--unit char"),
        ({"delays": [2000.0, 1000.0]}, "delays = 2000.0, 1000.0: must never fall"),
        ({"delays": [1000.0, "x"]}, "delays = 'x': must be a number"),
        ({"delays": [1000.0, float("nan")]}, "delays = nan: must be finite"),
        ({"elapsed": [1.0]}, "number of elapsed .simuleval. = 1: must be that of delays, 2"),
        ({"source_length": 0}, "source_length = 0.0: must be above 0"),
        ({"prediction": None}, "prediction = None: must be a text"),
        ({"elapsed_clock": "moon"}, "elapsed_clock = 'moon': must be one of simuleval, true"),
        (
            {"segments": [{"end_ms": 1, "computation_ms": 1, "units": 1}]},
            "segments released 1 units: must be as many as delays, 2",
        ),
        (
            {"segments": [{"end_ms": 1000, "computation_ms": 1, "units": 2}]},
            "delays = 2000.0: must be the end of the unit's segment, 1000.0",
        ),
        (
            {"segments": [{"end_ms": 1000, "computation_ms": 1, "units": 1.5}]},
            "units = 1.5: must be a whole number",
        ),
        (
            {"segments": [{"end_ms": 1000, "computation_ms": -1, "units": 1}]},
            "computation_ms = -1.0: must be 0 or above",
        ),
    ],
)
def test_impossible_values_are_named(path, change, message):
    """File, line, field, value, and what is allowed."""
    with pytest.raises(LogError, match=rf"instances\.log:1: {message}"):
        read(path, {**SIMULEVAL_1_1, **change})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([segment(1.0, 0.1)], "id = 7: no line before names its recording"),
        (simulstream(segment(1.0, 0.1, ["a"], ["b"])), "deleted_tokens = .'b'.: must end"),
        ([{"strange": 1}], "fields strange are of no known log"),
    ],
)
def test_broken_logs_are_refused(path, lines, message):
    """What cannot be understood is not scored."""
    with pytest.raises(LogError, match=message):
        read(path, *lines)


@pytest.mark.parametrize(
    ("text", "message"), [("\n", "is empty"), ("[1]", "JSON object"), ("{", "not JSON")]
)
def test_files_that_are_no_json_lines(path, text, message):
    """The place is told."""
    path.write_text(text, encoding="utf8")
    with pytest.raises(LogError, match=message):
        read_lines(path)


def read_lines(path):
    from earvoice.evaluation.log import read_records

    return read_records(path)


def test_a_folder_has_one_log(tmp_path):
    """instances.log first; otherwise one JSON-lines file, and no guessing between two."""
    with pytest.raises(LogError, match="found: none"):
        find_log(tmp_path)
    only = write(tmp_path / "run.jsonl", SIMULEVAL_1_1)
    assert find_log(tmp_path) == only
    write(tmp_path / "other.jsonl", SIMULEVAL_1_1)
    with pytest.raises(LogError, match=r"other\.jsonl, run\.jsonl"):
        find_log(tmp_path)
    log = write(tmp_path / "instances.log", SIMULEVAL_1_1)
    assert find_log(tmp_path) == log
    assert find_log(only) == only
    with pytest.raises(LogError, match="no such file"):
        find_log(tmp_path / "nowhere")


def test_references_must_be_as_many_as_instances(path):
    """Given ones replace those of the log."""
    assert read(path, SIMULEVAL_1_1, references=("ein altes Haus",)).instances[0].target_units == 3
    with pytest.raises(LogError, match="2 references were given for 1 instances"):
        read(path, SIMULEVAL_1_1, references=("a", "b"))
