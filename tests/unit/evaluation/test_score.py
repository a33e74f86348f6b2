"""The command ``earvoice score``."""

from __future__ import annotations

import argparse
import json

import pytest

from earvoice.cli.command import CommandError, ExitCode
from earvoice.evaluation.instance import count_units, default_unit, split_text
from earvoice.evaluation.quality import bleu_tokenizer
from earvoice.evaluation.score import COMMAND
from tests.unit.evaluation.logs import (
    SIMULEVAL_1_0,
    SIMULEVAL_1_1,
    item,
    segment,
    simulstream,
    utterance_end,
    write,
)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        parser = argparse.ArgumentParser()
        COMMAND.add_arguments(parser)
        assert COMMAND.run(parser.parse_args([str(argument) for argument in arguments])) == 0
        return capsys.readouterr().out

    return run


def test_the_table_names_tool_clock_and_rules(run, tmp_path):
    """Nothing is printed that cannot be compared."""
    write(tmp_path / "instances.log", SIMULEVAL_1_1)
    text = run(tmp_path)
    for part in (
        "earvoice score ",
        "SimulEval 1.1 instances.log",
        "1, 0 without output",
        "word; references: blanks never count",
        "simuleval",
        "RTF                         0.2000",
    ):
        assert part in text
    assert "AL                       1000.0000     1250.0000" in text


def test_lag_behind_a_text_is_told_in_words_too(run, tmp_path):
    """Of the ideal clock; 1000 ms are four words of 250."""
    write(tmp_path / "instances.log", {**SIMULEVAL_1_1, "source_word_ms": 250.0})
    text = run(tmp_path)
    assert "ideal, words" in text
    assert "AL                       1000.0000     1250.0000        4.0000" in text


def test_one_language_of_a_log_is_scored(run, tmp_path):
    """Words of two, in one text, would be compared with one reference."""
    said = item("Hallo", 1000.0, 1100.0), item("Hola", 2000.0, 2200.0, target_language="es")
    log = write(tmp_path / "run.jsonl", *said, utterance_end(0, 0.0, 3000.0))
    assert "StartOffset              2000.0000" in run(log, "--language", "es")
    for given in ((), ("--language", "fr")):
        with pytest.raises(CommandError, match=r"has de and es.*--language") as caught:
            run(log, *given)
        assert caught.value.exit_code == ExitCode.INPUT


def test_json_has_all_digits(run, tmp_path):
    """For programs: nothing is rounded."""
    log = write(tmp_path / "instances.log", {**SIMULEVAL_1_1, "delays": [1000 / 3, 2000]})
    report = json.loads(run(log, "--format", "json"))
    assert report["score"]["rows"]["StartOffset"]["ideal"] == {"value": 1000 / 3, "count": 1}
    assert report["unit"] == "word"


def test_simuleval_1_0_rows(run, tmp_path):
    """What the older version printed stands beside what the newer one prints."""
    log = write(tmp_path / "instances.log", SIMULEVAL_1_0)
    assert "AL (SimulEval 1.0)" in run(log)


def test_quality_has_signatures(run, tmp_path):
    """BLEU and chrF say how they were computed."""
    pytest.importorskip("sacrebleu")
    line = {
        **SIMULEVAL_1_1,
        "prediction": "das ist ein Haus",
        "reference": "das ist ein Haus",
        "delays": [1000.0] * 4,
        "elapsed": [1000.0] * 4,
    }
    text = run(write(tmp_path / "instances.log", line), "--language", "de")
    assert "BLEU                      100.0000  nrefs:1|case:mixed|eff:no|tok:13a" in text
    assert "chrF                      100.0000" in text
    assert "version:" in text


def test_references_can_be_given(run, tmp_path):
    """A log of simulstream has none, nor utterances; the report says what stands in."""
    log = write(tmp_path / "run.jsonl", *simulstream(segment(1.0, 0.1, ["ein", "Haus"])))
    assert "1 of 1 instances have no reference" in run(log)
    assert "LAAL* takes an instance for one utterance" in run(log)
    references = tmp_path / "references.txt"
    references.write_text("ein altes Haus am See\n", encoding="utf8")
    text = run(log, "--references", references)
    assert "no reference" not in text
    assert "AP (no unit)                0.4000" in text


def test_compatible_splitting(run, tmp_path):
    """Double blanks count as a word, and the report says that they do."""
    log = write(tmp_path / "instances.log", {**SIMULEVAL_1_1, "reference": "ein  Haus"})
    assert "AP (no unit)                0.7500" in run(log)
    text = run(log, "--compatible-splitting")
    assert "AP (no unit)                0.5000" in text
    assert "counted as SimulEval does" in text


def test_the_language_chooses_the_unit(run, tmp_path):
    """Chinese and Japanese are counted in characters unless told otherwise."""
    line = {**SIMULEVAL_1_1, "prediction": "你好", "reference": "你好"}
    log = write(tmp_path / "instances.log", line)
    assert "unit      char" in run(log, "--language", "zh-Hans")
    with pytest.raises(CommandError, match="perhaps the log counts --unit char"):
        run(log, "--language", "zh", "--unit", "word")


def test_a_log_that_cannot_be_read_is_bad_input(run, tmp_path):
    """The exit status says that the input, not the command, is wrong."""
    with pytest.raises(CommandError, match="no such file") as caught:
        run(tmp_path / "nothing.log")
    assert caught.value.exit_code == ExitCode.INPUT


def test_units_and_tokenizers():
    """What a language is counted in, and what BLEU cuts it with."""
    assert split_text(" ein  Haus ", "char") == list("einHaus")
    assert count_units(" ein  Haus ", "word") == 2
    assert count_units(" ein Haus ", "char", compatible=True) == 8
    assert [default_unit(tag) for tag in ("", "de", "ja", "zh_TW")] == [
        "word",
        "word",
        "char",
        "char",
    ]
    assert [bleu_tokenizer(tag) for tag in ("", "de", "ja-JP", "zh")] == [
        "13a",
        "13a",
        "ja-mecab",
        "zh",
    ]
