"""Where attention looks, and the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earvoice.cli.command import CommandError
from earvoice.decoder.strategy import TokenTable
from earvoice.evaluation.log import read_records
from earvoice.evaluation.recording import Recording
from earvoice.studies.attention import (
    agreed_count,
    main,
    mean_shares,
    stable_from,
    unit_ends,
)

pytestmark = pytest.mark.torch


def test_a_token_is_stable_from_where_it_never_changes_again():
    """The third token stood in the first segment too, but not in the second."""
    assert stable_from([3, 1, 3], [800.0, 1600.0, 2400.0], 4, 3000.0) == [800, 2400, 2400, 3000]
    assert stable_from([], [], 2, 3000.0) == [3000, 3000]


@given(st.lists(st.integers(0, 6), max_size=6))
def test_words_become_stable_in_order(agreed: list[int]):
    """A word is never stable before the words in front of it."""
    ends_ms = [800.0 * (number + 1) for number in range(len(agreed))]
    stable_ms = stable_from(agreed, ends_ms, 6, 9000.0)
    assert stable_ms == sorted(stable_ms)
    for place, end_ms in enumerate(stable_ms):
        later = [count for at, count in zip(ends_ms, agreed, strict=True) if at >= end_ms]
        assert all(count > place for count in later)


def test_tokens_are_counted_by_the_units_they_write():
    """Pieces of a word belong together; characters each share their word's last piece."""
    table = TokenTable((b"", b"Haus", b"t", "ür".encode()), (False, True, True, False), 0)
    assert unit_ends([1, 2, 3, 1], table, "word") == [1, 3, 4]
    assert unit_ends([2, 3], table, "char") == [2, 2, 2]


def test_a_longer_word_is_another_word():
    """Pieces of a word agree only where the hypothesis ends the word as the final text does."""
    table = TokenTable((b"", b"Haus", b"es", b"und"), (False, True, False, True), 0)
    assert agreed_count([3, 1, 2, 3], [3, 1, 3], table) == 1
    assert agreed_count([3, 1, 3], [3, 1, 2], table) == 2
    assert agreed_count([3, 1, 0], [3, 1, 2], table) == 2
    assert agreed_count([3, 1], [3, 1, 2], table) == 2
    assert agreed_count([2, 1], [1], table) == 0


def test_shares_are_means_over_segments():
    """Each segment counts once, however long its hypothesis."""
    first = torch.tensor([0.1, 0.2, 0.7]).expand(2, 3, 5, 3)
    second = torch.tensor([0.5, 0.5]).expand(2, 3, 1, 2)
    shares = mean_shares([first, second])
    assert shares is not None
    expected = torch.tensor([[0.6, 0.35, (1 / 3 + 1 / 2) / 2]] * 2)
    torch.testing.assert_close(shares, expected)
    assert mean_shares([]) is None


def run_study(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def test_a_study_writes_tables_pictures_and_the_oracle(
    recording: Recording, model_path: Path, tmp_path: Path
):
    """Every setting has a row, the oracle says what offline says, and not later."""
    names = ("offline@segment=400", "edatt:alpha=0.4,attention_layer=2@segment=400")
    run_study(
        *(recording.folder, "--model", model_path, "--to", "de", "--segment", 400),
        *("--output", tmp_path, "--policy", names[0], "--policy", names[1]),
    )
    header, *rows = (line.split("\t") for line in (tmp_path / "study.tsv").open())
    assert [row[0] for row in rows] == ["oracle@segment=400", *names]
    assert header[-3:-1] == ["BLEU below oracle", "LAAL above oracle"]
    assert [float(cell) for cell in rows[0][-3:-1]] == [0.0, 0.0]
    assert float(rows[1][-2]) >= 0
    assert (tmp_path / "attention_0000.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "attention_share.tsv").read_text().splitlines()) == 5
    oracle, offline = (
        read_records(tmp_path / name / "instances.log")
        for name in ("oracle@segment=400", "offline@segment=400")
    )
    for early, late in zip(oracle, offline, strict=True):
        assert early.text("prediction") == late.text("prediction")
        pairs = zip(early.numbers("delays"), late.numbers("delays"), strict=True)
        assert all(first <= second for first, second in pairs)


def test_a_segment_that_no_session_may_have_is_refused(recording: Recording, tmp_path: Path):
    """Segments of nothing would never end."""
    with pytest.raises(CommandError, match="--segment = 0 is not allowed; allowed: 200 to 10000"):
        run_study(recording.folder, "--segment", 0, "--output", tmp_path)


def test_inputs_shorter_than_a_segment_have_no_shares(
    recording: Recording, model_path: Path, tmp_path: Path
):
    """Nothing comes before their last segment: the table is empty."""
    run_study(*(recording.folder, "--model", model_path, "--segment", 10_000, "--output", tmp_path))
    assert (tmp_path / "attention_share.tsv").read_text() == ""
