"""The long-form table of the field's tool, from the raw log: half a minute of alignment."""

from __future__ import annotations

import pytest

from earvoice.evaluation.score import ScoringOptions, score_log
from tests.shared_data import shared_data


def test_omnistevals_table_for_five_talks():
    """From the raw log to LongYAAL and BLEU: what OmniSTEval itself prints, to 1e-3."""
    pytest.importorskip("omnisteval")
    folder = shared_data("data/latency") / "acl6060-longform"
    options = ScoringOptions(
        language="de",
        references=folder / "references.txt",
        segmentation=folder / "ref_segments.yaml",
        compatible=True,
    )
    report, _, _ = score_log(folder / "instances.log", options)
    yaal = report.score.rows["YAAL"]
    assert yaal["ideal"].value == pytest.approx(2934.0779, abs=1e-3)
    assert yaal["segment"].value == pytest.approx(5873.8065, abs=1e-3)
    assert report.quality.bleu == pytest.approx(22.6566, abs=1e-3)
    assert report.quality.chrf == pytest.approx(52.5444, abs=1e-3)
