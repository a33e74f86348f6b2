"""Curves: lines, bands and what lies between points."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from earvoice.evaluation.log import LogError
from earvoice.evaluation.score import ScoringOptions
from tests.unit.evaluation.curve_set import write_run, write_sweep
from tests.unit.evaluation.logs import write

np = pytest.importorskip("numpy")
pytest.importorskip("sacrebleu")

from earvoice.evaluation.bootstrap import Bootstrap  # noqa: E402 - behind the skips
from earvoice.evaluation.curves import (  # noqa: E402  # noqa: E402
    find_points,
    group_points,
    latency_rows,
    point_rows,
    quality_at,
    read_point,
)
from earvoice.evaluation.curves import interpolate as interpolate_draws  # noqa: E402

points = st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 100)), min_size=2, max_size=6)


@pytest.fixture
def sweep(tmp_path):
    return write_sweep(tmp_path / "s")


def interpolate(drawn, latency_ms):
    latencies_ms, qualities = np.array(drawn, np.float64).T[:, :, np.newaxis]
    (value,) = interpolate_draws(latencies_ms, qualities, np.array([latency_ms]))[0]
    return None if np.isnan(value) else value


def read_all(folder):
    return [read_point(found, ScoringOptions()) for found in find_points(folder)]


@example([(0.0, 0.0), (5e-324, 0.0)], 1.0)
@given(points, st.floats(0, 5000))
def test_interpolated_quality_is_between_its_neighbours(drawn, latency_ms):
    """No quality is made up: never outside what was measured, none beyond the last point."""
    value = interpolate(drawn, latency_ms)
    if min(drawn)[0] <= latency_ms <= max(drawn)[0]:
        qualities = [quality for _, quality in drawn]
        assert min(qualities) - 1e-9 <= value <= max(qualities) + 1e-9
    else:
        assert value is None


@example([(0.0, 0.0), (1.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 0.0)], 0.5)
@given(points, st.floats(0, 5000))
def test_a_point_that_was_never_timed_says_nothing(drawn, latency_ms):
    """It changes no other's order."""
    unknown = (float("nan"), 50.0)
    for place in range(len(drawn) + 1):
        mixed = [*drawn[:place], unknown, *drawn[place:]]
        assert interpolate(mixed, latency_ms) == interpolate(drawn, latency_ms)


@example([(1.2e-38, 0.0), (0.0, 1.0)])
@given(points)
def test_interpolation_goes_through_the_points(drawn):
    """At a point's own latency stands its own quality."""
    latency_ms, quality = drawn[0]
    if [latency for latency, _ in drawn].count(latency_ms) == 1:
        assert interpolate(drawn, latency_ms) == pytest.approx(quality)


def test_a_line_a_policy_or_a_line_a_choice(sweep):
    """Folder names say policy and choices; a key makes lines of their own."""
    lines = group_points(read_all(sweep), [])
    assert [(name, len(points)) for name, points in lines] == [
        ("edatt", 2),
        ("local_agreement", 2),
    ]
    names = [name for name, _ in group_points(read_all(sweep), ["n"])]
    assert names == ["edatt", "local_agreement n=2", "local_agreement n=3"]


def test_points_of_different_test_sets_are_refused(sweep, tmp_path):
    """Their difference would mean nothing."""
    other = write_run(tmp_path / "other", 0.0)
    log = other / "instances.log"
    log.write_text(log.read_text().replace('"reference": "das', '"reference": "dies'))
    with pytest.raises(LogError, match="not of the same test set"):
        group_points([*read_all(sweep), read_point(other, ScoringOptions())], [])


def test_a_resampled_corpus_is_scored_as_sacrebleu_scores_it(sweep):
    """The sums of sentence statistics are a corpus: the undrawn test set has its own BLEU."""
    for point in read_all(sweep):
        bootstrap = Bootstrap(3, 50)
        assert bootstrap.bleu(point.statistics)[0] == pytest.approx(point.bleu)
        for clock in ("ideal", "simuleval"):
            resampled_ms = bootstrap.mean(point.values("LAAL", clock))[0]
            assert resampled_ms == pytest.approx(point.latency("LAAL", clock))


def test_the_draws_are_the_same_for_every_point(sweep):
    """Paired: a system compared with itself never differs, and a second run draws alike."""
    edatt, _ = group_points(read_all(sweep), [])
    rows = list(latency_rows([edatt, edatt], [1500.0], "LAAL", ["ideal"], Bootstrap(3)))
    assert {row["BLEU"] for row in rows} == {rows[0]["BLEU"]}
    first, second = (Bootstrap(3).bleu(edatt[1][0].statistics) for _ in range(2))
    assert (first == second).all()


def test_a_point_without_the_clock_is_none_of_the_line(sweep):
    """A log that never measured computation bends no band on a computation-aware clock."""
    (_, edatt), _ = group_points(read_all(sweep), [])
    bootstrap = Bootstrap(3, 200)
    expected = quality_at(edatt, 1700.0, "LAAL", "simuleval", bootstrap)
    uncounted = write_run(sweep / "edatt:alpha=0.3", 200.0)
    log = uncounted / "instances.log"
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    write(log, *({**line, "elapsed": []} for line in lines))
    (_, points), _ = group_points(read_all(sweep), [])
    assert len(points) == 3
    found = quality_at(points, 1700.0, "LAAL", "simuleval", bootstrap)
    assert np.array_equal(found, expected, equal_nan=True)
    alone = [read_point(uncounted, ScoringOptions())]
    assert np.isnan(quality_at(alone, 1700.0, "LAAL", "simuleval", bootstrap)).all()


def test_the_table_has_what_papers_print(sweep):
    """Quality with its band, latency on each clock, overhead, cost and length."""
    (row, *_) = point_rows(group_points(read_all(sweep), []), Bootstrap(3))
    assert row["overhead simuleval"] == pytest.approx(200)
    assert row["LAAL simuleval"] - row["LAAL ideal"] == pytest.approx(200)
    assert row["BLEU low"] - 1e-9 <= row["BLEU"] <= row["BLEU high"] + 1e-9
    assert row["length ratio"] == 1
    assert row["core-s / h"] == pytest.approx(600 / 12_000 * 3600)
