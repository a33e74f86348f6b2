"""What a run writes is what the scorer reads."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.evaluation.log import LogError, ReadingOptions, Record
from earvoice.evaluation.log_formats import describe_runs, read_log
from earvoice.evaluation.metrics import score_corpus
from earvoice.evaluation.score import Report, score_table
from tests.unit.evaluation.logs import read
from tests.unit.evaluation.session import collect, segment, short_session, summary, utterance, word

parts = st.lists(
    st.tuples(
        st.integers(1, 3000),
        st.integers(0, 4000).map(float),
        st.lists(st.sampled_from(["ja", "Haus", "München"]), max_size=4),
    ),
    min_size=1,
    max_size=8,
)


def finish_times_ms(drawn):
    """When the work on each segment is done."""
    finished_ms, end_ms = 0.0, 0
    for length, computation_ms, _ in drawn:
        end_ms += length
        finished_ms = max(float(end_ms), finished_ms) + computation_ms
        yield finished_ms


def run_of(drawn, unit="word"):
    """A session whose segments end after each other, released at the end of their work."""
    ends_ms = accumulate(length for length, _, _ in drawn)
    groups = []
    finished = finish_times_ms(drawn)
    for end_ms, finished_ms, (_, computation_ms, texts) in zip(
        ends_ms, finished, drawn, strict=True
    ):
        words = [word(text, float(end_ms), finished_ms) for text in texts]
        groups.append(segment(float(end_ms), computation_ms, *words))
    total_ms = float(sum(length for length, _, _ in drawn))
    return collect(*groups, utterance(0, 0.0, total_ms), summary(total_ms), unit=unit)


def read_back(*recordings, unit="word"):
    lines = [Record("log", recording) for recording in recordings]
    return read_log(None, lines, ReadingOptions(unit=unit)).instances


@given(parts, st.sampled_from(["word", "char"]))
def test_a_recording_comes_back_as_it_was(drawn, unit):
    """Text, delays, clocks and computation survive the log."""
    recording = run_of(drawn, unit)
    (instance,) = read_back(recording, unit=unit)
    assert instance.prediction == recording["prediction"]
    assert list(instance.delays_ms) == recording["delays"]
    if unit == "word":
        released = zip(finish_times_ms(drawn), drawn, strict=True)
        finished = [ms for ms, (_, _, texts) in released for _ in texts]
        assert instance.elapsed_ms["true"] == pytest.approx(finished)
    if recording["delays"] and recording["computation_ms"]:
        assert list(instance.elapsed_ms["simuleval"]) == recording["elapsed"]
    assert instance.computation_ms == recording["computation_ms"]
    assert list(instance.source_ends_ms) == [end for _, end in recording["source_intervals"]]


@given(parts)
def test_simulstreams_log_of_a_run_has_the_same_ideal_scores(drawn):
    """The field's other tool reads the same words at the same delays."""
    (ours,) = read_back(run_of(drawn))
    records = [Record("log", run_of(drawn))]
    lines = [Record("log", line) for line in describe_runs(records, "word")]
    (theirs,) = read_log(None, lines, ReadingOptions()).instances
    assert theirs.prediction == ours.prediction
    # Its seconds are milliseconds again up to the last bit.
    assert theirs.delays_ms == pytest.approx(ours.delays_ms, rel=1e-12)
    assert theirs.computation_ms == pytest.approx(ours.computation_ms)


@given(parts)
def test_overgeneration_never_helps(drawn):
    """LAAL is never below AL, on every clock, whatever was written."""
    rows = score_corpus(read_back(run_of(drawn))).rows
    for clock, mean in rows["AL"].items():
        if mean.value is not None:
            assert rows["LAAL"][clock].value >= mean.value - 1e-6


def test_utterances_survive_the_log():
    """LAAL* is by utterance, with times from its own start."""
    recording = collect(
        segment(1000.0, 0.0, word("ja", 1000.0, 1000.0)),
        utterance(0, 0.0, 1000.0),
        segment(1800.0, 0.0, word("nein", 1800.0, 1800.0, utterance=1)),
        utterance(1, 1000.0, 2000.0),
        summary(2000.0),
    )
    (instance,) = read_back(recording)
    assert [part.delays_ms for part in instance.utterances] == [(1000,), (800,)]
    assert [part.source_length_ms for part in instance.utterances] == [1000, 1000]


def test_a_live_run_is_read_on_its_own_clock():
    """Its merged segments tell no other clock, but the whole computation."""
    (instance,) = read_back(short_session(live=True, clock="live"))
    assert instance.elapsed_ms == {"live": (1245, 1265, 2255)}
    assert instance.computation_ms == 1100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segments": [{"end_ms": 500, "computation_ms": 1, "units": 3}]}, "end of the unit's"),
        (
            {"segments": [{"end_ms": 1, "computation_ms": 1, "units": 1, "offsets_ms": [2]}]},
            "within the segment's computation",
        ),
        ({"utterances": [{"start_ms": 0, "end_ms": 9, "units": 1}]}, "as many as delays"),
        ({"source_intervals": [[1, 2, 3]]}, "pairs of numbers"),
    ],
)
def test_contradictions_in_a_log_are_told(tmp_path, change, message):
    """A log that was changed by hand is not scored."""
    line = short_session() | change
    with pytest.raises(LogError, match=message):
        read(tmp_path / "instances.log", line)


def test_the_table_of_scores_is_for_programs():
    """One number a line, unrounded, with its clock and how many instances it is the mean of."""
    score = score_corpus(read_back(short_session()))
    report = Report("1", "log", "f", "word", "r", "w", score, None, ())
    lines = [line.split("\t") for line in score_table(report).splitlines()]
    assert lines[0] == ["metric", "clock", "value", "instances"]
    assert ["StartOffset", "ideal", "1000.0", "1"] in lines
    assert ["length ratio", "", "1.5", "1"] in lines
