"""Scores of real logs are those that the field's tools printed for them."""

from __future__ import annotations

import gzip
import json

import pytest

from earvoice.evaluation.log import ReadingOptions, Record, read_records
from earvoice.evaluation.log_formats import read_omnisteval, read_simuleval
from earvoice.evaluation.metrics import (
    average_lagging_1_0,
    average_proportion_1_0,
    differentiable_average_lagging,
    score_corpus,
)
from tests.shared_data import shared_data
from tests.unit.evaluation.numbers import (
    EXCERPT,
    instance_of_row,
    read_rows,
)

ROWS = read_rows(EXCERPT)
TST_COMMON = {
    ("AL", "ideal"): 1803.9192,
    ("LAAL", "ideal"): 1857.7128,
    ("AL", "simuleval"): 2021.1781,
    ("AP", "ideal"): 0.7948,
    ("DAL", "ideal"): 3532.4812,
    ("YAAL", "ideal"): 1135.6097,
    ("YAAL", "simuleval"): 1272.7485,
    ("LAAL", "simuleval"): 2071.7031,
    ("AP", "simuleval"): 0.8903,
    ("DAL", "simuleval"): 3883.0303,
}
LONG_FORM = {
    ("YAAL", "ideal"): 2934.0779,
    ("AL", "ideal"): 2926.5856,
    ("LAAL", "ideal"): 3073.3884,
    ("AP", "ideal"): 1.0807,
    ("DAL", "ideal"): 4130.8025,
    ("YAAL", "segment"): 5873.8065,
    ("AL", "segment"): 6054.7628,
    ("LAAL", "segment"): 6144.2184,
    ("AP", "segment"): 1.7704,
    ("DAL", "segment"): 7414.8258,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["index"])
@pytest.mark.parametrize("suffix", ["", "_CA"])
def test_instances_have_simuleval_1_0_scores(row, suffix):
    """What the tool stored beside each of 40 real instances (in single precision)."""
    instance = instance_of_row(row)
    times_ms = instance.elapsed_ms["simuleval"] if suffix else instance.delays_ms
    length_ms = instance.source_length_ms
    lagging_ms = average_lagging_1_0(times_ms, length_ms, instance.target_units)
    assert lagging_ms == pytest.approx(float(row[f"AL{suffix}"]), abs=2e-3)
    proportion = average_proportion_1_0(times_ms, length_ms)
    assert proportion == pytest.approx(float(row[f"AP{suffix}"]), abs=1e-4)
    differentiable_ms = differentiable_average_lagging(times_ms, length_ms)
    assert differentiable_ms == pytest.approx(float(row[f"DAL{suffix}"]), abs=0.05)


def test_tst_common_corpus_scores():
    """2,580 instances of MuST-C tst-COMMON to 1e-3."""
    rows = read_rows(shared_data("data/latency") / "tst-common-en-de.numbers.tsv")
    score = score_corpus([instance_of_row(row) for row in rows])
    found = {key: score.rows[key[0]][key[1]].value for key in TST_COMMON}
    # The published proportions have four decimals.
    assert found == pytest.approx(TST_COMMON, abs=1e-3)
    assert (score.instance_count, score.silent_count) == (2580, 0)


def test_omnisteval_long_form_scores():
    """OmniSTEval's table for five talks cut into 468 sentences, to 1e-3."""
    folder = shared_data("data/latency") / "acl6060-longform" / "segmentation_output"
    path = folder / "instances.resegmented.jsonl"
    log = read_omnisteval(path, read_records(path), ReadingOptions(compatible=True))
    score = score_corpus(log.instances)
    found = {key: score.rows[key[0]][key[1]].value for key in LONG_FORM}
    assert found == pytest.approx(LONG_FORM, abs=1e-3)
    assert log.format_name == "OmniSTEval 0.1.7 resegmented JSON lines"


def test_logs_of_simuleval_1_0_have_the_scores_they_hold():
    """Real instances.log lines, read as a log: each line's own AL, AP and DAL come out."""
    for path in shared_data("golden/runs").glob("v10_*.json.gz"):
        for line in json.loads(gzip.decompress(path.read_bytes()))["instances"]:
            log = read_simuleval(path, [Record(str(path), line)], ReadingOptions())
            rows = score_corpus(log.instances, simuleval_1_0=True).rows
            for clock, key in (("ideal", "latency"), ("simuleval", "latency_ca")):
                stored = line["metric"][key]
                found = {
                    "AL": rows["AL (SimulEval 1.0)"][clock].value,
                    "AP": rows["AP (SimulEval 1.0)"][clock].value,
                    "DAL": rows["DAL"][clock].value,
                }
                # It computed in single precision.
                assert found == pytest.approx(stored, rel=1e-5)
