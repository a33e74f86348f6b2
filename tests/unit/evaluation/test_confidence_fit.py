"""A run whose words are right or wrong says how sure its model may be."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from earvoice.evaluation.confidence import (
    SpokenUtterance,
    calibrate,
    confidences,
    fit,
    least_understood,
    log_probabilities,
    read_run,
    reliability_table,
    share_right,
)
from earvoice.evaluation.log import LogError
from earvoice.models.config import PRESETS, Confidence
from earvoice.policy.stream_options import Confidence as StreamConfidence

TRUE = Confidence(0.8, 0.4, -0.2)


def overconfident(count: int, seed: int = 1):
    """Probabilities' logarithms of a model that is too sure, and whether each word is right."""
    generator = np.random.default_rng(seed)
    logarithms = -np.logaddexp(0, -generator.normal(1.5, 2.5, count))
    return logarithms, generator.random(count) < confidences(logarithms, TRUE)


def utterances_of(logarithms, right, size: int = 5):
    return [
        SpokenUtterance(
            tuple(logarithms[at : at + size].tolist()),
            tuple(right[at : at + size].tolist()),
            tuple(range(len(logarithms[at : at + size]))),
        )
        for at in range(0, len(logarithms), size)
    ]


def test_the_map_that_made_the_words_is_found():
    """Within what 20,000 words allow, over the probabilities that words have."""
    found = fit(*overconfident(20_000))
    logarithms = np.log(np.array([0.05, 0.2, 0.5, 0.8, 0.95, 0.99]))
    wanted = confidences(logarithms, TRUE)
    assert confidences(logarithms, found) == pytest.approx(wanted, abs=0.02)


def test_of_words_with_eight_tenths_eight_in_ten_are_right():
    """On words that the fit has not seen; before it they are not."""
    found = calibrate(utterances_of(*overconfident(8000)))
    logarithms, right = overconfident(40_000, seed=2)
    _, before = share_right(np.exp(logarithms), right, 0.8)
    count, after = share_right(confidences(logarithms, found), right, 0.8)
    assert count > 1000
    assert abs(before - 0.8) > 0.1
    assert after == pytest.approx(0.8, abs=0.05)


def test_divided_sides_have_a_map():
    """Where every likely word is right and no other is, it is steep and not endless."""
    logarithms = np.log(np.array([0.1, 0.2, 0.7, 0.9]))
    found = fit(logarithms, np.array([False, False, True, True]))
    assert all(math.isfinite(value) for value in (found.unsure_scale, found.sure_scale))
    assert confidences(logarithms, found)[0] < 0.5 < confidences(logarithms, found)[-1]


@pytest.mark.parametrize("part", ["unlikely", "likely"])
def test_a_map_never_falls(part):
    """Where the fit alone would fall at one end, that end's scale is 0."""
    logarithms, right = overconfident(20_000)
    sure = np.exp(logarithms)
    upside_down = sure < 0.3 if part == "unlikely" else sure > 0.97
    chance = 1 - sure if part == "unlikely" else 0.6
    right = np.where(upside_down, np.random.default_rng(3).random(len(right)) < chance, right)
    found = fit(logarithms, right)
    ordered = confidences(np.linspace(-12, -1e-6, 500), found)
    assert np.all(np.diff(ordered) >= 0)
    assert min(found.unsure_scale, found.sure_scale) >= 0


def test_confidences_are_traced_back_to_probabilities():
    """Whatever they were made with, and as the policy service makes them."""
    made_with = Confidence(0.7, 0.3, 0.2)
    for value in (-0.001, -0.3, -2.5, -9.0):
        told = StreamConfidence(0.7, 0.3, 0.2).of(value)
        assert confidences(np.array([value]), made_with)[0] == pytest.approx(told)
        assert log_probabilities(np.array([told]), made_with)[0] == pytest.approx(value, rel=1e-3)


def test_what_is_mostly_wrong_is_held_back_and_what_is_mostly_right_is_not():
    """The place that gives the most right words less wrong ones."""
    assert least_understood([0.2, 0.3, 0.8, 0.9], [-5, -3, 4, 6]) == pytest.approx(0.55)
    assert least_understood([0.8, 0.9], [4, 6]) == 0.0
    assert least_understood([0.2, 0.3], [-4, -6]) > 0.3
    assert least_understood([0.2, 0.3, 0.8, 0.9], [-5, 0, 4, 6]) == pytest.approx(0.55)


def test_hardly_anything_right_is_held_back_for_the_sake_of_much_that_is_wrong():
    """One of ten mostly right utterances is more than two in a hundred."""
    means = [0.2, 0.3, *np.linspace(0.5, 0.9, 9)]
    gains = [2, -50, *[5] * 9]
    assert least_understood(means, gains) == 0.0
    assert least_understood(means, [-2, *gains[1:]]) == pytest.approx(0.4)


def test_an_utterance_is_as_sure_as_it_ever_was_when_words_were_released():
    """Words that leave together count together; one alone counts where none follows."""
    same = Confidence()
    sure = tuple(map(math.log, (0.9, 0.1, 0.2)))
    together = SpokenUtterance(sure, (True, False, False), (800.0, 800.0, 1600.0))
    assert together.most_mean(same) == pytest.approx(0.5)
    apart = SpokenUtterance(sure, (True, False, False), (800.0, 1600.0, 1600.0))
    assert apart.most_mean(same) == pytest.approx(0.4)
    assert SpokenUtterance(sure[:1], (True,), (800.0,)).most_mean(same) == pytest.approx(0.9)
    assert together.gain == -1


def test_the_table_tells_what_confidences_are_worth():
    """A line for each tenth that has words, the figure at 0.8, and what would be held back."""
    run = utterances_of(*overconfident(2000))
    found = calibrate(run)
    table = reliability_table(run, found)
    assert "0.9 to 1.0" in table
    assert "words with 0.75 to 0.85, the share right is 0." in table
    assert f"understood from a mean confidence of {found.least:.3f}" in table


@pytest.mark.parametrize("right", [True, False])
def test_words_that_are_all_alike_say_nothing(right):
    """All right, or all wrong: there is no line to find."""
    with pytest.raises(LogError, match="words are right"):
        calibrate([SpokenUtterance((-0.5, -0.6), (right, right), (1.0, 2.0))])


def test_confidence_that_points_the_wrong_way_is_refused():
    """The surer the wronger: no map that never falls makes that true."""
    sure = SpokenUtterance((-0.1, -0.05), (False, False), (1.0, 2.0))
    unsure = SpokenUtterance((-2.3, -1.6), (True, True), (1.0, 2.0))
    with pytest.raises(LogError, match="not right more often"):
        calibrate([sure, unsure])


def write_run(folder, **changes):
    options = {"target_languages": ["en"], "min_confidence": 0.0}
    session = {"model_hash": "h", "options": options | changes.pop("options", {})} | changes
    (folder / "evaluation.json").write_text(json.dumps({"session": session}))
    lines = [
        {
            "prediction": "Hello, wold — my friend.",
            "reference": "hello world my friend",
            "confidences": [0.9, 0.3, 0.5, 0.8, 0.7],
            "elapsed": [810.0, 830.0, 830.0, 1600.0, 1600.0],
            "utterances": [{"units": 3}, {"units": 0}, {"units": 2}],
        },
        {
            "prediction": "Thank you.",
            "reference": "",
            "confidences": [0.2, 0.2],
            "elapsed": [800.0, 800.0],
            "utterances": [{"units": 2}],
        },
    ]
    (folder / "instances.log").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_run_is_read_by_utterances(tmp_path):
    """Right is what the alignment says; a dash is no word; without a transcript all is wrong."""
    write_run(tmp_path)
    first, second, babble = read_run(tmp_path, PRESETS["small"], "h")
    assert first.log_probabilities == pytest.approx((math.log(0.9), math.log(0.3)))
    assert (first.right, first.released_ms) == ((True, False), (810.0, 830.0))
    assert second.right == (True, True)
    assert babble.right == (False, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_hash": "other"}, "model_hash is other, not h"),
        ({"options": {"target_languages": ["de"]}}, "run with --to en"),
        ({"options": {"min_confidence": 0.3}}, "run with --min-confidence 0"),
    ],
)
def test_a_run_that_cannot_tell_is_refused(tmp_path, changes, message):
    """Another model, a translation, or words that were held back."""
    write_run(tmp_path, **changes)
    with pytest.raises(LogError, match=message):
        read_run(tmp_path, PRESETS["small"], "h")


def test_no_run_is_told(tmp_path):
    """A folder without one."""
    with pytest.raises(LogError, match=r"evaluation\.json"):
        read_run(tmp_path, PRESETS["small"], "h")
