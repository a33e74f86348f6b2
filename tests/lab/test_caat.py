"""CAAT learns a toy language of one state a piece, sooner written where the lag is weighed."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
import torch

from earvoice.models.config import DecoderConfig, ModelConfig
from earvoice.systems.caat import Example, committed, searched, train
from tests.tiny_model import TARGET_TEXT, WIDTH, tiny_config, train_sentencepiece

pytestmark = pytest.mark.torch

STEPS = 400


def _config() -> ModelConfig:
    pieces = train_sentencepiece(TARGET_TEXT)
    decoder = DecoderConfig(layers=1, predictor_layers=1, heads=4, ffn_width=64)
    return replace(tiny_config(pieces, pieces), decoder=decoder)


def _examples() -> list[Example]:
    """Each piece has a state of its own, and a step brings one more of them."""
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(48, WIDTH, generator=generator)
    texts = torch.randint(4, 30, (8, 4), generator=generator)
    return [([states[text[: n + 1]] for n in range(4)], text.tolist()) for text in texts]


def test_what_is_learned_and_how_late_it_is_written() -> None:
    """The loss falls, every text is written as it was taught, and the weight buys time."""
    config, examples, lags = _config(), _examples(), []
    for weight in (0.0, 2.0):
        decoder, course = train(config, examples, weight, STEPS)
        assert course[-1][0] < 0.1 * course[0][0]
        lags.append(fmean(lag for _, lag in course[-10:]))
        if weight:
            continue
        for heard, pieces in examples:
            written = committed(decoder, heard, 1)
            assert [piece for piece, _ in written] == pieces
            assert searched(decoder, heard, 5, 5) == tuple(pieces)
    assert lags[1] < lags[0]
