"""A text model of `transformers`, of random weights, as a teacher."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration

from earvoice.models.vocabulary import Vocabulary
from earvoice.training.distillation import translations
from tests.tiny_model import TARGET_TEXT, train_sentencepiece

pytestmark = pytest.mark.torch

TEXTS = ["der Tag", "das ist ein langer Satz", "die Zeit"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("teacher")
    pieces = Vocabulary(train_sentencepiece(TARGET_TEXT)).pieces
    tokenizer = MBart50Tokenizer(
        vocab=[(piece, -float(index)) for index, piece in enumerate(pieces)],
        src_lang="en_XX",
        tgt_lang="de_DE",
    )
    tokenizer.save_pretrained(folder)
    config = MBartConfig(
        vocab_size=len(tokenizer),
        encoder_layers=1,
        decoder_layers=1,
        d_model=16,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        max_position_embeddings=160,
        init_std=0.5,
        decoder_start_token_id=2,
    )
    MBartForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_texts_keep_their_order_and_bear_company(teacher: Path) -> None:
    """Each is translated as it is alone, whatever its length."""
    together = translations(teacher, TEXTS, ("en_XX", "de_DE"))
    assert together == [translations(teacher, [text], ("en_XX", "de_DE"))[0] for text in TEXTS]
    assert any(together)


def test_the_languages_are_asked_for(teacher: Path) -> None:
    assert translations(teacher, TEXTS, ("en_XX", "de_DE")) != translations(
        teacher, TEXTS, ("en_XX", "fr_XX")
    )
