"""Nguyen 2021 on a toy: trained offline, then written by its schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from earvoice.models.config import DecoderConfig, ModelConfig
from earvoice.models.lstm import LstmConfig
from earvoice.models.vocabulary import Vocabulary
from earvoice.systems.nguyen import SETTINGS, Example, Schedule, nguyen_config, train
from tests.tiny_model import TARGET_TEXT, train_sentencepiece

pytestmark = pytest.mark.torch

STEPS = 400
FRAMES_A_PIECE = 16


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    count = len(Vocabulary(train_sentencepiece(TARGET_TEXT)))
    encoder = LstmConfig(d_model=48, channels=4, layers=1, cells=32)
    decoder = DecoderConfig(architecture="lstm", layers=2, heads=1, ffn_width=48)
    return replace(nguyen_config(encoder, count, count), decoder=decoder)


def _examples() -> list[Example]:
    """Each piece is a sound of its own, 160 ms long."""
    generator = torch.Generator().manual_seed(3)
    sounds = torch.randn(48, 80, generator=generator)
    texts = torch.randint(4, 30, (8, 4), generator=generator)
    return [
        (sounds[text].repeat_interleave(FRAMES_A_PIECE, 0), text.tolist(), text.tolist())
        for text in texts
    ]


def test_what_is_learned_offline_is_written_offline(config: ModelConfig) -> None:
    """The loss falls; with everything heard most texts are as they were taught."""
    examples = _examples()
    network, course = train(config, examples, STEPS, peak_rate=5e-3)
    assert course[-1] < 0.5 * course[0]
    written = [Schedule(network, features).offline() for features, _, _ in examples]
    right = [
        [piece for piece, _ in each] == pieces
        for each, (_, _, pieces) in zip(written, examples, strict=True)
    ]
    assert sum(right) > len(right) / 2
    assert {time_ms for each in written for _, time_ms in each} == {640.0}


def test_a_schedule_is_the_papers(config: ModelConfig) -> None:
    """g(t) = min{k + (t - 1) s, |X|}, N pieces a step at most, no more than there are states."""
    network, _ = train(config, _examples(), 1)
    with torch.no_grad():
        # It never ends by itself.
        network.decoder.output_projection.weight[2] = 0.0
        network.decoder.embed_tokens.weight[4:] *= 3.0
    schedule = Schedule(network, torch.randn(70, 80, generator=torch.Generator().manual_seed(1)))
    written = schedule.write(30, 20, 3)
    times_ms = [time_ms for _, time_ms in written]
    for frames in (30, 50):
        assert times_ms.count(10.0 * frames) <= 3
    assert set(times_ms) <= {300.0, 500.0, 700.0}
    assert times_ms == sorted(times_ms)
    assert len(written) <= 18


def test_twelve_settings() -> None:
    assert len(set(SETTINGS)) == 12
    assert SETTINGS[0] == (100, 10, 3)
