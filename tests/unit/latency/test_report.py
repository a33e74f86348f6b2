"""The numbers of a session, and how they are told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.latency.rendering import html_report, overview, record_of, text_report
from earvoice.latency.session_report import percentile, report_session, slowest_words, spread_of
from earvoice.latency.stage import WORD_STAGES
from earvoice.latency.traced_session import TracedWord
from earvoice.runtime.lag import laal_star_ms
from tests.unit.latency.test_joining import STAGES, joined
from tests.unit.latency.traced import item, segment_spans, session_span

TIMES = st.lists(st.floats(0, 1e5), min_size=1, max_size=50)


@pytest.fixture
def report():
    """Two utterances of 1000 ms, the second without a word in its first segment."""
    spans = [
        *segment_spans(1, STAGES, [item(500, 600, 200), item(500, 600, 400)]),
        *segment_spans(2, STAGES, [item(1000, 1100, 900, commit_segment=2)], utterance_end_ms=1000),
        *segment_spans(1, STAGES, utterance=1, start_ms=1000),
        *segment_spans(
            2,
            {**STAGES, "decoder_compute": 925},
            [item(2000, 3000, 1800, commit_segment=2)],
            utterance=1,
            start_ms=1000,
            utterance_end_ms=2000,
        ),
        session_span(audio_ms=2000.0),
    ]
    return report_session(joined(spans))


def test_lag_and_laal_star(report):
    """By the definitions that everything else uses: LAAL* per utterance, then their mean."""
    lag, laal_star = report["word_lag_ms"], report["laal_star_ms"]
    lags_ms = [word["delay_ms"] - word["source_end_ms"] for word in report["words"]]
    assert lags_ms == [300, 100, 100, 200]
    assert (lag["ideal"]["mean"], lag["live"]["max"]) == (175, 1200)
    first, second = laal_star_ms([500, 500, 1000], 1000), laal_star_ms([1000], 1000)
    assert laal_star["ideal"] == pytest.approx((first + second) / 2)
    first, second = laal_star_ms([600, 600, 1100], 1000), laal_star_ms([2000], 1000)
    assert laal_star["live"] == pytest.approx((first + second) / 2)


def test_the_true_clock_of_a_live_session(report):
    """Its segments had nothing but their audio and the one before to wait for."""
    # Four segments of 65, 65, 65 and 965 ms, at 500, 1000, 1500 and 2000.
    assert report["word_lag_ms"]["true"]["max"] == 2000 + 965 - 1800
    first, second = laal_star_ms([565, 565, 1065], 1000), laal_star_ms([1965], 1000)
    assert report["laal_star_ms"]["true"] == pytest.approx((first + second) / 2)


def test_a_backlog_is_not_hidden():
    """Computation of 1.3 s a segment of 1 s: the fourth is finished 1.3 * 4 s after the first."""
    spans = [
        span
        for index in range(1, 5)
        for span in segment_spans(
            index,
            {"encoder_compute": 1000, "decoder_compute": 300},
            [item(index * 1000, 9999, 0, commit_segment=index)],
            end_ms=index * 1000,
        )
    ]
    report = report_session(joined([*spans, session_span()]))
    assert report["word_lag_ms"]["true"]["max"] == 1000 + 4 * 1300


@pytest.mark.parametrize("missing", [1, 2, "merged"])
def test_the_true_clock_is_not_guessed(missing):
    """With a segment merged or lost, nobody knows what would have been."""
    spans = [
        span
        for index in (1, 2, 3)
        if index != missing
        for span in segment_spans(index, STAGES, segment__merged=int(missing == "merged"))
    ]
    report = report_session(joined([*spans, session_span()]))
    assert set(report["word_lag_ms"]) == {"ideal", "live"}


def test_the_real_time_factor_is_computation_per_audio(report):
    """Of all segments, also those without words."""
    assert report["real_time_factor"] == pytest.approx((3 * 65 + 965) / 2000)


def test_shares_add_up_to_the_whole(report):
    """Each stage's part of the lag of all words."""
    assert sum(stage["share"] for stage in report["stages"]) == pytest.approx(1)


def test_the_cause_is_what_was_unusual(report):
    """The last word waited 200 ms for audio and 925 ms for the decoder."""
    slowest = report["slowest"][0]
    assert (slowest["word"], slowest["cause"]["stage"]) == (4, "decoder_compute")
    assert (slowest["cause"]["ms"], slowest["cause"]["usual_ms"]) == (925, 25)


def word_of(stages):
    """A word with these stages, spoken at 0."""
    return TracedWord(0, 1, 0.0, sum(stages), 0.0, dict(zip(NAMES, stages, strict=True)))


NAMES = [stage.name for stage in WORD_STAGES]


@given(st.lists(st.lists(st.floats(0, 1e4), min_size=12, max_size=12), min_size=1, max_size=30))
def test_the_slowest_words_are_the_slowest(rows):
    """Ten at most, falling; nothing that was left out is slower."""
    words = [word_of(row) for row in rows]
    lags = [slow["lag_ms"] for slow in slowest_words(words)]
    assert lags == sorted((word.lag_ms for word in words), reverse=True)[:10]


@given(TIMES)
def test_percentiles_lie_in_order(values):
    """Between the smallest and the largest."""
    spread = spread_of(values)
    assert min(values) <= spread["p50"] <= spread["p95"] <= spread["p99"] <= spread["max"]
    assert spread["max"] == max(values)


def test_percentiles_are_interpolated():
    """As numpy's default does."""
    assert percentile([0, 10], 0.95) == pytest.approx(9.5)
    assert percentile([7], 0.99) == 7
    assert spread_of([]) is None


def test_a_session_without_words_has_no_lag():
    """And is reported all the same."""
    report = report_session(joined([*segment_spans(1, STAGES), session_span()]))
    assert (report["word_lag_ms"]["live"], report["laal_star_ms"]["live"]) == (None, None)
    assert (report["stages"], report["slowest"]) == ([], [])
    assert "0 words" in text_report([report], [])
    assert json.dumps(record_of([report], []))


def test_the_text_names_every_stage_and_the_cause(report):
    """For a person at a terminal."""
    text = text_report([report], ["a trace was broken"])
    for stage in WORD_STAGES:
        assert stage.label in text
    assert "the decoder computed long (925 ms, usually 25)" in text
    assert "left out: a trace was broken" in text
    assert "LAAL*" in text


def test_the_live_table_has_a_line_a_session(report):
    """Short enough for a terminal of 80 columns."""
    lines = overview([report, report], []).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)


def test_nothing_to_report_is_said():
    """An empty screen would leave the reader in doubt."""
    assert "no session" in text_report([], [])


def test_the_record_keeps_the_clocks_apart(report):
    """The name of the clock stands beside each number."""
    (session,) = json.loads(json.dumps(record_of([report], [])))["sessions"]
    assert session["clock"] == "live"
    assert set(session["word_lag_ms"]) == set(session["laal_star_ms"]) == {"ideal", "live", "true"}
    for word in session["words"]:
        lag = word["elapsed_ms"] - word["source_end_ms"]
        assert sum(word["stages"].values()) == pytest.approx(lag)


def test_the_record_rounds_times_and_no_parameters(report):
    """A threshold of 0.0004 is none of 0."""
    policy = {"name": "edatt", "parameters": {"alpha": 0.0004}}
    (session,) = record_of([report | {"policy": policy, "rtf": 0.12345}], [])["sessions"]
    assert (session["policy"], session["rtf"]) == (policy, 0.123)


def test_the_page_stands_alone(report):
    """No address of another file, every part in its place, and the data as it is printed."""
    page = html_report([report], ["</script><b>"])
    for loading in ("src=", "href=", "@import", "url(", "fetch(", "http"):
        assert loading not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<!--" not in page
    assert page.count("</script>") == 2
    data = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data) == record_of([report], ["</script><b>"])
