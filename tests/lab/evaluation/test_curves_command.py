"""The command ``earvoice curves`` on logs that are there."""

from __future__ import annotations

import argparse
import csv

import pytest

from earvoice.cli.command import CommandError
from tests.unit.evaluation.curve_set import write_sweep

pytest.importorskip("matplotlib")
pytest.importorskip("sacrebleu")

from earvoice.evaluation.curves import COMMAND


@pytest.fixture
def sweep(tmp_path):
    return write_sweep(tmp_path / "s")


def run(*arguments):
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    return COMMAND.run(parser.parse_args([str(argument) for argument in arguments]))


def test_curves_of_folders_are_tables_and_pictures(sweep, tmp_path, capsys):
    """Logs that are there need no services."""
    output = tmp_path / "out"
    assert run(sweep, "--output", output, "--at", "2000") == 0
    with (output / "curves.tsv").open() as file:
        assert len(list(csv.DictReader(file, delimiter="\t"))) == 4
    with (output / "quality_at_latency.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [(row["latency"], row["line"]) for row in rows][:2] == [
        ("LAAL ideal", "edatt"),
        ("LAAL ideal", "local_agreement"),
    ]
    assert "<svg" in (output / "curves.svg").read_text()
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "edatt:alpha=0.6" in capsys.readouterr().out


@pytest.mark.parametrize("metric", ["StartOffset", "mean lag"])
def test_every_latency_can_be_drawn(sweep, tmp_path, capsys, metric):
    """Its columns are those that are shown."""
    assert run(sweep, "--output", tmp_path / "out", "--latency", metric) == 0
    assert f"{metric} ideal" in capsys.readouterr().out


def test_a_folder_that_is_named_twice_is_one_point(sweep, tmp_path):
    """Two lines of the same point would only look like more."""
    assert run(sweep, sweep / "edatt:alpha=0.1", "--output", tmp_path / "out") == 0
    assert len((tmp_path / "out" / "curves.tsv").read_text().splitlines()) == 5


def test_the_same_curves_are_the_same_file(sweep, tmp_path):
    """Nothing in a picture depends on the day or on chance."""
    for name in ("one", "two"):
        run(sweep, "--output", tmp_path / name)
    one, two = ((tmp_path / name / "curves.svg").read_bytes() for name in ("one", "two"))
    assert one == two


def test_a_table_of_earlier_curves_does_not_stay(sweep, tmp_path):
    """It would be read as one of the curves beside it."""
    output = tmp_path / "out"
    run(sweep, "--output", output, "--at", "2000")
    run(sweep, "--output", output, "--at", "")
    assert not (output / "quality_at_latency.tsv").exists()


@pytest.mark.filterwarnings("error")
def test_an_empty_panel_is_told(sweep, tmp_path, capsys):
    """Nothing in the logs says when words arrived at a client."""
    assert run(sweep, "--output", tmp_path / "out", "--clock", "live") == 0
    assert capsys.readouterr().err == (
        "earvoice: the figure of the clock live is empty: no point has both LAAL on it and BLEU "
        "with its band\n"
    )


def test_a_key_that_no_point_has_is_refused(sweep, tmp_path):
    """Mistyped, it would draw fewer lines than were asked for."""
    with pytest.raises(CommandError, match="--lines alfa: no point has it; allowed: alpha"):
        run(sweep, "--output", tmp_path / "out", "--lines", "alpha,alfa")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to draw"),
        (("--sweep", "edatt:alfa=1"), "edatt:alfa is not a parameter"),
        (("--sweep", "edatt@attention=mean-over-layers"), "are for replays"),
        (("--sweep", "edatt"), "--source is missing"),
        (("nowhere",), "no instances.log"),
        (("--source", "wavs.txt", "nowhere"), "--source is for --sweep"),
        (("--at", "soon", "nowhere"), "must be numbers"),
        (("--at", "nan", "nowhere"), "must be numbers"),
    ],
)
def test_bad_arguments_are_told(tmp_path, arguments, message):
    """Before any service is started."""
    with pytest.raises(CommandError, match=message):
        run(*arguments, "--output", tmp_path)
