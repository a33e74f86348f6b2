"""Paired bootstrap, and BLEU from sums of what sentences add to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from earvoice.evaluation.bootstrap import (
    Bootstrap,
    band,
    corpus_bleu,
    estimate,
    sentence_statistics,
)

NAN = float("nan")
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


def test_first_row_is_the_test_set():
    """Row 0 is the plain result."""
    bootstrap = Bootstrap(3, resamples=10)
    assert bootstrap.mean(np.array([1.0, 2.0, 6.0]))[0] == pytest.approx(3.0)


def test_draws_are_seeded():
    """The same seed draws the same inputs, another seed others."""
    values = np.arange(20.0)
    first, same, other = (Bootstrap(20, resamples=50, seed=seed).mean(values) for seed in (1, 1, 2))
    assert list(first) == list(same)
    assert list(first) != list(other)


def test_draws_are_paired():
    """A difference that every input has is the same in every draw."""
    bootstrap = Bootstrap(20, resamples=50)
    values = np.random.default_rng(0).normal(size=20)
    differences = bootstrap.mean(values + 2.0) - bootstrap.mean(values)
    assert differences == pytest.approx(2.0)


def test_unknown_values_are_left_out():
    """An input without output has no latency and moves no mean."""
    means = Bootstrap(4, resamples=0).mean(np.array([1.0, NAN, 3.0, NAN]))
    assert means[0] == pytest.approx(2.0)


def test_interval_holds_what_most_draws_give():
    """The interval of a mean is close to the normal one."""
    values = np.random.default_rng(0).normal(size=400)
    number = estimate(Bootstrap(400).mean(values))
    half = 1.96 * values.std() / 20
    assert number.low == pytest.approx(number.value - half, abs=0.02)
    assert number.high == pytest.approx(number.value + half, abs=0.02)


def test_bands_hold_the_middle_of_what_is_known():
    """A band of mostly unknown values is none, and such a number has no interval."""
    assert band(np.arange(101.0)) == pytest.approx((2.5, 97.5))
    assert band(np.array([1.0, NAN])) is None
    assert np.isnan(estimate(np.array([1.0, 1.0, NAN])).low)
