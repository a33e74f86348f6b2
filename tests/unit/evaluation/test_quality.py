"""BLEU and chrF."""

from __future__ import annotations

import sys

import pytest

from earvoice.cli.command import CommandError
from earvoice.evaluation.bootstrap import sentence_statistics
from earvoice.evaluation.quality import score_quality


@pytest.mark.parametrize("score", [score_quality, sentence_statistics])
def test_what_is_missing_is_named(score, monkeypatch):
    """Without sacreBLEU the message is the command that helps."""
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(CommandError, match=r"pip install 'earvoice\[lab\]'"):
        score(["a"], ["a"])


def test_a_tokenizer_is_needed_for_japanese():
    """It is an extra of sacreBLEU."""
    pytest.importorskip("sacrebleu")
    try:
        quality = score_quality(["今日は晴れ"], ["今日は晴れ"], "ja")
    except CommandError as error:
        assert "pip install 'sacrebleu[ja]'" in str(error)  # noqa: PT017 - it may be there or not
    else:
        assert "tok:ja-mecab" in quality.bleu_signature


def test_chinese_is_cut_into_characters():
    """Four characters are enough for BLEU's longest n-gram."""
    pytest.importorskip("sacrebleu")
    quality = score_quality(["今天天气很好"], ["今天天气很好"], "zh-Hans")
    assert quality.bleu == pytest.approx(100)
    assert "tok:zh" in quality.bleu_signature
