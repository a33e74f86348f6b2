"""The papers' claims, answered from made-up runs whose answer is known."""

from __future__ import annotations

import csv
import json
import random

import numpy as np
import pytest
import soundfile

from earvoice.evaluation.bootstrap import Bootstrap, Estimate
from earvoice.evaluation.log import LogError
from earvoice.evaluation.recording import Grid
from earvoice.evaluation.replay.setting import parse_settings
from earvoice.evaluation.score import ScoringOptions
from earvoice.studies.claims import (
    AGREES,
    CLAIMS,
    DISAGREES,
    NOT_TESTED,
    UNDECIDED,
    above,
    equal,
    families,
    inputs_needed,
    judge_agreement,
    judge_ceiling,
    judge_chunk_size,
    judge_initial_wait,
    judge_over_generation,
    mean_values,
    rank_correlation,
    read_study,
    together,
)
from earvoice.studies.results import choose_inputs, report
from earvoice.systems.rows import Difference, Row, read_rows, write_rows

LAYERS, HEADS = 3, 2
WORD_MS = 400.0
VOCABULARY = [f"wort{number}" for number in range(50)]
FAMILIES = families(LAYERS, HEADS)
SETTINGS = tuple(dict.fromkeys(name for names in FAMILIES.values() for name in names))
ROW = Row(
    system="caat",
    paper="Liu 2021",
    trained="weight 0",
    written_with="committed",
    test_set="held out",
    inputs=60,
    bleu=12.0,
    bleu_low=9.0,
    bleu_high=15.0,
    wer=79.8,
    laal=1353.0,
    laal_unit="ms",
    baseline_bleu=0.9,
)
SESSION = {"model": "made-up", "model_version": "1", "model_hash": "0123456789abcdef"}


def translate(words, share_right):
    """Return the words with only a share of them right; more of them are right in higher shares."""
    draw = random.Random(" ".join(words))
    return [word if draw.random() < share_right else "falsch" for word in words]


def write_run(folder, share_right, lag_ms, inputs=40, seed=1, step_ms=200.0, language="de"):
    """Write a run whose words lag alike, on a grid of steps, never past the end."""
    draw = random.Random(seed)
    folder.mkdir(parents=True)
    lines = []
    for index in range(inputs):
        words = draw.choices(VOCABULARY, k=draw.randint(12, 18))
        length_ms = len(words) * WORD_MS
        delays = [
            min(length_ms, -(-(place * WORD_MS + lag_ms) // step_ms) * step_ms)
            for place in range(len(words))
        ]
        line = {
            "index": index,
            "prediction": " ".join(translate(words, share_right)),
            "delays": delays,
            "elapsed": [],
            "prediction_length": len(words),
            "reference": " ".join(words),
            "source": [f"{index}.wav"],
            "source_length": length_ms,
            "target_language": language,
            "source_intervals": [[n * WORD_MS, (n + 1) * WORD_MS] for n in range(len(words))],
            "segments": [
                {"end_ms": end_ms, "computation_ms": 20.0, "units": delays.count(end_ms)}
                for end_ms in sorted(set(delays))
            ],
        }
        lines.append(json.dumps(line))
    (folder / "instances.log").write_text("\n".join(lines) + "\n", encoding="utf8")
    (folder / "evaluation.json").write_text(json.dumps({"session": SESSION}))


@pytest.fixture
def study_of(tmp_path):
    """Return what makes a study of (share of right words, lag in ms) by setting."""

    def study_of(chosen, inputs=40):
        for name, (share_right, lag_ms) in chosen.items():
            write_run(tmp_path / name, share_right, lag_ms, inputs)
        return read_study(tmp_path, LAYERS, HEADS, ScoringOptions())

    return study_of


def line(family, lowest, highest):
    """Return a family's settings from fast and wrong to slow and right."""
    names = FAMILIES[family]
    shares = np.linspace(lowest, highest, len(names))
    return dict(
        zip(names, zip(shares, np.linspace(600, 2600, len(names)), strict=True), strict=True)
    )


def answers(findings):
    return {finding.answer for finding in findings}


@pytest.mark.parametrize(
    ("value", "low", "high", "answer"),
    [
        (1.5, 0.2, 2.8, AGREES),
        (0.9, 0.5, 1.3, UNDECIDED),
        (1.5, -0.1, 3.1, UNDECIDED),
        (-1.5, -2.8, -0.2, DISAGREES),
        (-0.9, -1.3, -0.5, UNDECIDED),
    ],
)
def test_above(value, low, high, answer):
    """A difference counts from 1 point on, and only if 0 is outside its interval."""
    assert above(Estimate(value, low, high)) == answer


@pytest.mark.parametrize(
    ("value", "low", "high", "answer"),
    [
        (0.1, -0.8, 0.9, AGREES),
        (0.1, -1.1, 0.9, UNDECIDED),
        (1.5, 0.2, 2.8, DISAGREES),
        (0.9, 0.2, 1.6, UNDECIDED),
    ],
)
def test_equal(value, low, high, answer):
    """Two things are alike only if the whole interval is small."""
    assert equal(Estimate(value, low, high)) == answer


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ([AGREES, AGREES], AGREES),
        ([AGREES, UNDECIDED], UNDECIDED),
        ([AGREES, DISAGREES, UNDECIDED], DISAGREES),
        ([AGREES, NOT_TESTED], UNDECIDED),
        ([NOT_TESTED, NOT_TESTED], NOT_TESTED),
        ([], NOT_TESTED),
    ],
)
def test_together(parts, answer):
    """All parts must agree, and one that disagrees is enough."""
    assert together(parts) == answer


def curve(*points):
    lags_ms, values = np.array(points, np.float64).T
    return np.repeat(lags_ms[:, None], 3, 1), np.repeat(values[:, None], 3, 1)


def test_curves_without_a_common_latency_are_not_compared():
    """There is nothing to compare where the ranges do not meet."""
    assert mean_values(curve((1000, 1), (2000, 2)), curve((2000, 1), (3000, 2)), (0, 1)) is None


def test_difference_of_parallel_curves():
    """A curve that lies 2 BLEU higher everywhere is 2 BLEU better in every draw."""
    higher, lower = curve((1000, 12), (3000, 22)), curve((1000, 10), (2000, 15), (3000, 20))
    (first, second), where = mean_values(higher, lower, (0.0, 1.0))
    assert first - second == pytest.approx(2.0)
    assert where == "over 1.0 to 3.0 s"
    (upper, _), where = mean_values(higher, lower, (0.5, 1.0))
    assert upper == pytest.approx(19.5)
    assert where == "over 2.0 to 3.0 s"


def test_names_of_settings_can_be_read_back():
    """A folder's name says the whole setting, and no two settings share one."""
    assert [[one.name for one in parse_settings(name)] for name in SETTINGS] == [
        [name] for name in SETTINGS
    ]


def test_recorded_grids_hold_every_boundary():
    """Segments of 250 and 800 ms are all that must be recorded."""
    known = {end for ms in (250, 800) for end in Grid(ms).boundaries(16_000, 320_000)}
    for name in SETTINGS:
        (setting,) = parse_settings(name)
        grid = Grid(setting.segment_ms, setting.initial_wait_ms or 0)
        assert set(grid.boundaries(16_000, 320_000)) <= known


@pytest.mark.parametrize(
    ("edatt", "agreement", "answer"),
    [
        ((0.6, 0.9), (0.4, 0.7), AGREES),
        ((0.4, 0.7), (0.6, 0.9), DISAGREES),
        ((0.7, 0.7), (0.7, 0.7), UNDECIDED),
    ],
)
def test_better_curve_wins(study_of, edatt, agreement, answer):
    """EDAtt is above LA-2 where it is better, and only there; what was not run is told."""
    study = study_of(line("EDAtt", *edatt) | line("LA-2", *agreement))
    findings = judge_agreement(study)
    assert answers(findings[:2]) == {answer}
    assert findings[3].answer == NOT_TESTED


def test_a_curve_that_only_waits_longer_wins_nothing(study_of):
    """What a later curve gains at each setting is lost at equal latency."""
    plain = dict(
        zip(FAMILIES["LA-2"], [(0.5, 600), (0.6, 1200), (0.7, 1800), (0.8, 2400)], strict=True)
    )
    late = [(0.5, 600), (0.6, 1200), (0.7, 1800), (0.8, 2400), (0.9, 3000)]
    study = study_of(plain | dict(zip(FAMILIES["Hold-6"], late, strict=True)))
    gain = study.gain("Hold-6", "LA-2").number
    assert abs(gain.value) < 0.5
    assert study.gain("Hold-6", "LA-2", part=(0.5, 1.0)).text.endswith("upper half, at equal LAAL")


def test_settings_that_were_not_run_are_told(study_of):
    """Without its settings a claim is not tested."""
    study = study_of({FAMILIES["offline"][0]: (0.9, 9000.0)}, inputs=4)
    assert answers(judge_chunk_size(study)) == {NOT_TESTED}


def test_initial_wait_delays_and_changes_nothing_else(study_of):
    """The same text, later, agrees with the claim."""
    chosen = dict.fromkeys(FAMILIES["LA-2"], (0.8, 800.0))
    chosen |= dict.fromkeys(FAMILIES["LA-2, first chunk 2 s"], (0.8, 1600.0))
    assert answers(judge_initial_wait(study_of(chosen))) == {AGREES}


@pytest.mark.parametrize(("share", "answer"), [(0.9, AGREES), (0.5, DISAGREES)])
def test_online_that_reaches_offline(study_of, share, answer):
    """Slow settings with offline's text agree, worse ones disagree."""
    slow = (FAMILIES["LA-2"][-1], FAMILIES["EDAtt"][-1])
    chosen = dict.fromkeys(slow, (share, 2500.0)) | {FAMILIES["offline"][0]: (0.9, 9000.0)}
    assert answers(judge_ceiling(study_of(chosen))) == {answer}


def test_rank_correlation_with_ties():
    """Ties share their mean rank, as scipy.stats.spearmanr has them."""
    first = np.array([1.0, 2.0, 2.0, 4.0])
    assert rank_correlation(first, first) == pytest.approx(1.0)
    assert rank_correlation(first, -first) == pytest.approx(-1.0)
    assert rank_correlation(first, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.948683)


def test_different_inputs_are_refused(tmp_path):
    """Results that are not paired cannot be compared."""
    for seed, name in enumerate(SETTINGS[:2]):
        write_run(tmp_path / name, 0.5, 900.0, 3, seed)
    with pytest.raises(LogError, match="not of the same test set"):
        read_study(tmp_path, LAYERS, HEADS, ScoringOptions())
    with pytest.raises(LogError, match="none of the settings"):
        read_study(tmp_path / "nowhere", LAYERS, HEADS, ScoringOptions())


def test_the_page_answers_every_claim(tmp_path):
    """With every setting run, every claim is tested, and page, figure and table tell of all."""
    pytest.importorskip("matplotlib")
    for place, name in enumerate(SETTINGS):
        lag_ms = 600.0 + 400 * (place % 3) + 2.0 * place
        write_run(tmp_path / "runs" / name, 0.7, lag_ms, inputs=6, step_ms=1.0)
        if "attention_heads" not in name:
            write_run(tmp_path / "people" / name, 0.7, lag_ms, inputs=4, language="en")
    words = tmp_path / "words.jsonl"
    logged = (tmp_path / "runs" / SETTINGS[0] / "instances.log").read_text().splitlines()
    spoken = [
        [
            {"word": "w", "start_ms": start_ms, "end_ms": end_ms}
            for start_ms, end_ms in json.loads(text)["source_intervals"]
        ]
        for text in logged
    ]
    words.write_text("".join(f"{json.dumps(line)}\n" for line in spoken))
    options, page = ScoringOptions(words=words), tmp_path / "results.md"
    systems = tmp_path / "systems"
    write_rows(systems, "caat", [ROW], [Difference("caat", "one less two", 1.5, -0.5, 3.5, "BLEU")])
    runs, people = tmp_path / "runs", tmp_path / "people"
    study = read_study(runs, LAYERS, HEADS, options, "synthetic", "en")
    captions = read_study(people, LAYERS, HEADS, ScoringOptions(), "real people", "en")
    report({runs: study, people: captions}, page, systems)
    text = page.read_text(encoding="utf8")
    assert "| synthetic, de | `made-up` | 1 | `0123456789ab` | 6 |" in text
    assert "| claim | synthetic, de | real people, en |" in text
    assert text.count("\n### ") == len(CLAIMS)
    assert text.count("not tested (not run)") == HEADS
    assert "`edatt@segment=800,lag=1500`" in text
    assert "% right: " in text
    assert "| caat | Liu 2021 | weight 0 | committed | held out | 60 | 12.0 [9.0, 15.0] |" in text
    assert "| caat | one less two | 1.5 [-0.5, 3.5] BLEU |" in text
    (true_lag,) = [row for row in text.splitlines() if row.startswith("| LAAL | ")]
    assert "1.00" in true_lag or "0.99" in true_lag
    with (tmp_path / "results.tsv").open(encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["point"] for row in rows if row["run"] == "synthetic, de"] == list(SETTINGS)
    for figure in ("results-synthetic.svg", "results-real-people.svg"):
        assert "<svg" in (tmp_path / figure).read_text(encoding="utf8")
    assert judge_over_generation(study)[0].answer == AGREES


def test_captions_are_judged_by_right_words(tmp_path):
    """In every draw it is 100 less the word error rate; without references nothing is known."""
    write_run(tmp_path / SETTINGS[0], 0.7, 900.0, language="en")
    study = read_study(tmp_path, LAYERS, HEADS, ScoringOptions(), "people", "en")
    assert study.measure == "% right"
    (point,) = study.points.values()
    right = study.quality(point)
    assert right[0] == pytest.approx(100 - point.report.quality.wer)
    assert 60 < right.min() < right[0] < right.max() < 80
    assert np.isnan(Bootstrap(2).right_words(np.full((2, 2), np.nan))).all()
    assert read_study(tmp_path, LAYERS, HEADS, ScoringOptions(), "people", "fr").measure == "BLEU"


@pytest.mark.parametrize(
    ("half", "least", "needed"),
    [(2.0, 1.0, 400), (1.1, 0.5, 490), (1.0, 1.0, None), (9.0, 0.0, None)],
)
def test_inputs_that_would_decide(half, least, needed):
    """An interval shrinks with the root of the inputs; told in two figures, rounded up."""
    assert inputs_needed(Estimate(0.3, 0.3 - half, 0.3 + half), least, 100) == needed


def test_rows_of_systems_are_read_back(tmp_path):
    """What a system has shown is read as it was written."""
    gain = Difference("caat", "one less two", 1.5, -0.5, 3.5, "BLEU")
    write_rows(tmp_path, "caat", [ROW], [gain])
    assert read_rows(tmp_path) == ([ROW], [gain])


def test_inputs_are_neither_short_nor_long(tmp_path):
    """The first of them in order; what belongs to an input stays with it."""
    paths = [tmp_path / f"{seconds}.wav" for seconds in (4, 6, 20, 9, 7)]
    for path in paths:
        soundfile.write(path, np.zeros(int(path.stem) * 1000), 1000)
    (tmp_path / "wavs.txt").write_text("".join(f"{path}\n" for path in paths))
    (tmp_path / "refs.de.txt").write_text("".join(f"text {path.stem}\n" for path in paths))
    choose_inputs(tmp_path, "de", 2, tmp_path / "chosen")
    assert (tmp_path / "chosen" / "refs.txt").read_text() == "text 6\ntext 9\n"
    assert (tmp_path / "chosen" / "wavs.txt").read_text() == f"{paths[1]}\n{paths[3]}\n"
    assert not (tmp_path / "chosen" / "words.jsonl").exists()
