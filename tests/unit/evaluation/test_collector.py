"""From a session's events to what a log keeps."""

from __future__ import annotations

import pytest

from earvoice.client.errors import ProtocolError
from earvoice.evaluation.instance import true_elapsed
from earvoice.evaluation.log import Record
from earvoice.evaluation.log_formats import read_segments
from tests.unit.evaluation.session import (
    collect,
    segment,
    short_session,
    summary,
    utterance,
    word,
)


def true_times(line):
    return true_elapsed(read_segments(Record("log", line)))


def test_the_clocks_are_replayed_from_what_the_services_measured():
    """A unit's offset is from the start of its segment's work: the true clock comes out again."""
    recording = short_session()
    assert recording["prediction"] == "ein altes Haus"
    assert recording["delays"] == [1000, 1000, 2000]
    assert recording["segments"][1]["offsets_ms"] == pytest.approx([40, 60])
    assert true_times(recording) == pytest.approx((1240, 1260, 2250))
    assert recording["elapsed"] == [1800, 1800, 3100]
    assert recording["computation_ms"] == 1100


def test_a_word_in_pieces_is_released_with_its_last_piece():
    """Where tokens are committed, the unit belongs to the segment that completed it."""
    recording = collect(
        segment(500.0, 10.0, word("Ha", 500.0, 510.0, heard=(0.0, 200.0))),
        segment(1000.0, 10.0, word("us", 1000.0, 1010.0, starts_word=False, heard=(300.0, 400.0))),
        summary(1000.0),
    )
    assert (recording["prediction"], recording["delays"]) == ("Haus", [1000])
    assert recording["source_intervals"] == [[0, 400]]
    assert [part["units"] for part in recording["segments"]] == [0, 1]


def test_characters_are_units_of_their_own():
    """A later piece of a word leaves the characters before it where they were."""
    recording = collect(
        segment(500.0, 10.0, word("你好", 500.0, 510.0)),
        segment(1000.0, 10.0, word("吗", 1000.0, 1010.0, starts_word=False)),
        summary(1000.0),
        unit="char",
    )
    assert recording["prediction"] == "你好吗"
    assert recording["delays"] == [500, 500, 1000]


def test_delays_never_go_back_over_an_utterances_end():
    """The next utterance begins before what was received: its first segments are late already."""
    recording = collect(
        segment(2000.0, 10.0, word("ja", 2000.0, 2010.0)),
        utterance(0, 0.0, 1500.0),
        segment(1900.0, 10.0, word("nein", 2000.0, 2020.0, utterance=1), utterance=1),
        utterance(1, 1500.0, 3000.0),
        summary(3000.0),
    )
    assert [part["end_ms"] for part in recording["segments"]] == [2000, 2000]
    assert true_times(recording) == pytest.approx((2010, 2020))


def test_a_run_at_real_time_is_on_the_wall_clock():
    """Merged segments cannot be replayed: the times are those of arrival at the client."""
    recording = short_session(live=True, clock="live")
    assert recording["elapsed_clock"] == "live"
    assert "segments" not in recording
    assert recording["elapsed"] == [1245, 1265, 2255]


@pytest.mark.parametrize(
    "events", [segment(500.0, 1.0), [*summary(500.0), *segment(1.0, 1.0, word("a", 1, 1))[:1]]]
)
def test_a_broken_session_is_no_result(events):
    """Without a summary, or with words outside of segments, nothing is written down."""
    with pytest.raises(ProtocolError):
        collect(events)
