"""`earvoice verify policy`: recorded decisions of released code through our policies."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from earvoice.cli.command import CommandError, ExitCode
from earvoice.evaluation.verification.command import COMMAND

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "policy"
ATTENTION = GOLDEN / "policy_v1_0_attn.npz"


def verify(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    return COMMAND.run(parser.parse_args(["policy", *map(str, arguments)]))


def changed(tmp_path: Path, change) -> Path:
    content = json.loads((GOLDEN / "policy_v1_0.json").read_text(encoding="utf8"))
    change(content)
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content), encoding="utf8")
    return path


def first_of(content, kind: str):
    return next(case for case in content["cases"] if case["kind"] == kind)


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("policy_v1_0", "230 cases (75 alignatt, 75 edatt, 40 la, 40 waitk, 12 of them ungated)"),
        ("policy_v1_1", "150 cases (75 alignatt, 75 edatt)"),
    ],
)
def test_every_recorded_decision_is_ours(name, summary, capsys):
    """The released agents of both versions, with the options that reproduce them."""
    assert verify(GOLDEN / f"{name}.json", ATTENTION) == 0
    assert capsys.readouterr().out == f"{summary}, 0 differ\n"


@pytest.mark.parametrize("kind", ["edatt", "alignatt", "la", "waitk"])
def test_a_difference_is_told_and_is_status_one(kind, tmp_path, capsys):
    """A decision that nobody made: the case is named, with both sides."""
    names = []

    def change(content):
        case = first_of(content, kind)
        case["agreed" if kind == "la" else "write"] = [7, 7, 7]
        names.append(case["id"])

    assert verify(changed(tmp_path, change), ATTENTION) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{names[0]}: recorded [7, 7, 7], decided ")
    assert lines[-1].endswith(", 1 differ")


def test_the_memory_of_wait_k_is_compared_too(tmp_path, capsys):
    """A wrong count of words written is a difference."""

    def change(content):
        first_of(content, "waitk")["n_predicted_after"] += 1

    assert verify(changed(tmp_path, change), ATTENTION) == 1
    assert "words, counted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["cases"][0].update(kind="cif"), "kind = 'cif' is not allowed; allowed: ali"),
        (lambda c: c["cases"][0].pop("tokens"), "edatt0: tokens is missing"),
        (lambda c: c["cases"][0].update(tokens="a"), "must be a list"),
        (lambda c: c["cases"][0].update(tokens=[1, 2]), "must be [states, 2]"),
        (lambda c: c["cases"][0].update(tokens=[98, 49, 105, 92, 900]), "must be 0 to 119"),
        (lambda c: c["cases"][0].update(prefix_len=9), "prefix_len = 9: must be 0 to 5"),
        (lambda c: c["cases"][0].update(id="unknown"), "has no attention"),
        (lambda c: c.update(cases=[]), "cases is empty"),
        (lambda c: c.update(vocab=["a"]), "vocab has no </s>"),
        (lambda c: c.pop("vocab"), "vocab is missing"),
    ],
)
def test_a_bad_layout_is_told(change, message, tmp_path):
    """Bad input has its own status, and the message names the place and what is allowed."""
    with pytest.raises(CommandError) as failure:
        verify(changed(tmp_path, change), ATTENTION)
    assert failure.value.exit_code is ExitCode.INPUT
    assert message in str(failure.value)


def test_files_that_are_none_of_these_are_told(tmp_path):
    """A missing file, no JSON, no arrays."""
    text = tmp_path / "text"
    text.write_text("[1", encoding="utf8")
    empty, lone = tmp_path / "empty.npz", tmp_path / "lone.npy"
    empty.write_bytes(b"")
    np.save(lone, np.zeros(3))
    for arguments in (
        (tmp_path / "missing", ATTENTION),
        (text, ATTENTION),
        (GOLDEN / "policy_v1_0.json", text),
        (GOLDEN / "policy_v1_0.json", empty),
        (GOLDEN / "policy_v1_0.json", lone),
    ):
        with pytest.raises(CommandError) as failure:
            verify(*arguments)
        assert failure.value.exit_code is ExitCode.INPUT


def test_attention_of_another_case_is_noticed(tmp_path, capsys):
    """The rows decide: with all attention on the newest audio nothing is written."""
    with np.load(ATTENTION) as arrays:
        late = {name: np.zeros_like(arrays[name]) for name in arrays.files}
    for rows in late.values():
        rows[-2:] = 0.5
    path = tmp_path / "late.npz"
    np.savez(path, **late)
    assert verify(GOLDEN / "policy_v1_0.json", path) == 1
    assert "decided []" in capsys.readouterr().out
