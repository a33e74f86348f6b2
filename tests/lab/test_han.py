"""Han 2020 on a toy language: trained for wait-k, written word by word."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from earvoice.models.config import DecoderConfig, ModelConfig
from earvoice.models.text import TextConfig, source_pieces
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import Vocabulary
from earvoice.systems.han import han_config, lag_words, train, translate
from earvoice.systems.turns import SystemReport, Turn
from earvoice.training.wait_k_mask import wait_k_mask
from tests.tiny_model import train_sentencepiece

pytestmark = pytest.mark.torch

WORDS = {"one": "eins", "two": "zwei", "six": "sechs", "ten": "zehn"}
STEPS = 300

Learned = tuple[SpeechTranslationModel, Vocabulary, Vocabulary]


@pytest.fixture(scope="module")
def learned() -> Learned:
    """A network that has learned to write each of four words as another, for wait-2."""
    source = Vocabulary(train_sentencepiece((" ".join(WORDS),), 40))
    target = Vocabulary(train_sentencepiece((" ".join(WORDS.values()),), 40))
    config: ModelConfig = replace(
        han_config(len(source), len(target)),
        encoder=TextConfig(d_model=32, layers=1, heads=2, ffn_width=64),
        decoder=DecoderConfig(layers=2, heads=2, ffn_width=64, tied_embeddings=True),
    )
    examples = [
        (
            source_pieces(english, source, ended=True)[0],
            target.encode(" ".join(WORDS[word] for word in english)),
        )
        for english in product(WORDS, repeat=3)
    ]
    mask = wait_k_mask(2, source, target, reads_words=True)
    network, course = train(config, examples, mask, STEPS, peak_rate=1e-2)
    assert course[-1] < 0.6 * course[0]
    return network, source, target


@pytest.mark.parametrize(
    ("k", "delays"), [(1, [1, 2, 3]), (2, [2, 3, 3]), (3, [3, 3, 3]), (None, [3, 3, 3])]
)
def test_words_are_written_when_they_are_due(
    learned: Learned, k: int | None, delays: list[int]
) -> None:
    """g(t) = min{k + t - 1, |x|}, with the k of the training and with others."""
    assert translate(*learned, "two six one", k) == ("zwei sechs eins", delays)


def test_lag_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Wait-2 over three words into three lags two words, until the source is over."""
    sentence = Turn("two six one", "zwei sechs eins")
    shown = SystemReport("han", "Han 2020, text", [sentence], {"held out": [sentence]})
    for text, delays in (("zwei sechs eins", [2, 3, 3]), ("", [])):
        shown.row("held out", [text], [lag_words(delays, sentence)], lag_unit="words")
    _, written, silent = capsys.readouterr().out.splitlines()
    assert written.endswith("1 of 1 exact; LAAL 2.0 words of 1 not empty")
    assert "LAAL" not in silent
