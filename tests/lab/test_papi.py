"""Papi 2022 on a toy: masked by one k or by several drawn, written as the words are heard."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from earvoice.models.config import DecoderConfig
from earvoice.models.transformer import token_positions
from earvoice.models.vocabulary import Vocabulary
from earvoice.policies.base import Heard
from earvoice.systems.papi import train
from earvoice.systems.wait_k import write
from earvoice.training.wait_k_mask import wait_k_mask
from tests.tiny_model import WIDTH, tiny_config, train_sentencepiece

pytestmark = pytest.mark.torch

WORDS = {"one": "eins", "two": "zwei", "six": "sechs", "ten": "zehn"}
STEPS = 300


@pytest.mark.parametrize("several", [(), (2,), (1, 2, 3)])
def test_what_is_learned_is_written_when_due(several: tuple[int, ...]) -> None:
    """Offline, for one k and for several: word t is written when k + t - 1 words are heard."""
    source_model = train_sentencepiece((" ".join(WORDS),), 40)
    target_model = train_sentencepiece((" ".join(WORDS.values()),), 40)
    source, target = Vocabulary(source_model), Vocabulary(target_model)
    config = replace(
        tiny_config(source_model, target_model),
        decoder=DecoderConfig(layers=2, heads=4, ffn_width=64, tied_embeddings=True),
    )
    sounds = torch.randn(len(source), WIDTH, generator=torch.Generator().manual_seed(3))

    def heard(labels: list[int]) -> torch.Tensor:
        return sounds[labels] + token_positions(len(labels), WIDTH)

    examples = []
    for english in product(WORDS, repeat=3):
        labels = source.encode(" ".join(english))
        german = target.encode(" ".join(WORDS[word] for word in english))
        examples.append((heard(labels), labels, german))
    masks = [wait_k_mask(k, source, target) for k in several]
    decoder, course = train(config, examples, masks, STEPS)
    assert course[-1] < 0.6 * course[0]
    words = ["two", "six", "one"]
    steps = [
        (Heard(0.0, len(labels), count), heard(labels), labels)
        for count in range(1, 4)
        for labels in [source.encode(" ".join(words[:count]))]
    ]
    for k, delays in ((2, [1, 2, 2]), (3, [2, 2, 2]), (None, [2, 2, 2])):
        written = write(decoder, target, steps, k)
        assert [index for token, index in written if token.starts_word] == delays
        if k in (None, *several):
            assert target.decode(token.token_id for token, _ in written) == "zwei sechs eins"
