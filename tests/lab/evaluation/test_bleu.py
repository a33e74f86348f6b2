"""BLEU from sums of what sentences add to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from earvoice.evaluation.bleu import corpus_bleu, sentence_statistics

WORDS = ["der", "die", "das", "Haus", "ist", "groß", ",", "."]
GRAMS = st.lists(st.integers(0, 30), min_size=4, max_size=4)
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6))
def test_equals_sacrebleu(pairs):
    """The BLEU of summed statistics is sacreBLEU's of the corpus, whatever matches or is empty."""
    hypotheses, references = zip(*pairs, strict=True)
    ours = corpus_bleu(sentence_statistics(hypotheses, references, "de").sum(0))
    theirs = BLEU().corpus_score(hypotheses, [references]).score
    assert float(ours) == pytest.approx(theirs, abs=1e-9)


@given(st.lists(st.tuples(GRAMS, GRAMS), min_size=1, max_size=4), st.integers(0, 60))
def test_degenerate_corpora_score_as_sacrebleu_scores_them(drawn, reference_length):
    """Any counts, many corpora in one matrix, and the same digits."""
    rows, expected = [], []
    for matches, more in drawn:
        written = [match + extra for match, extra in zip(matches, more, strict=True)]
        rows.append([written[0], reference_length, *matches, *written])
        score = BLEU.compute_bleu(
            matches, written, written[0], reference_length, smooth_method="exp"
        )
        expected.append(score.score)
    assert corpus_bleu(np.array(rows, np.float64)) == pytest.approx(expected, abs=1e-9)


def test_rows_are_independent():
    """Several corpora at once give what each gives alone."""
    statistics = sentence_statistics(["ein Haus ist da", "nichts"], ["ein Haus ist da", "alles"])
    sums = np.stack([statistics.sum(0), statistics[0], statistics[1]])
    assert list(corpus_bleu(sums)) == [float(corpus_bleu(row)) for row in sums]
