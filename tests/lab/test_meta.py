"""Han 2020, equations 1 and 2, on one parameter, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from earvoice.models.config import DecoderConfig
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS
from earvoice.systems.meta import (
    ENCODER,
    HEARD_STRIDE,
    WAIT_K,
    Example,
    encoded,
    meta_config,
    meta_train,
    train,
    visible_states,
    write,
)
from earvoice.training.meta import meta_backward

pytestmark = pytest.mark.torch

ALPHA, BETA = 0.5, 0.1
GERMAN, ENGLISH, PIECES = 30, 31, 32


def _quadratic(parameter: nn.Parameter, wanted: float) -> torch.Tensor:
    """(theta - wanted)²: its gradient is 2 (theta - wanted)."""
    return (parameter - wanted).square()


def test_the_update_of_two_steps() -> None:
    """From 1: auxiliary 1 - 0.5 · 2 (1 - 3) = 3; then 1 - 0.1 · 2 (3 - 2) = 0.8."""
    theta, unused = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(7.0))
    seen: list[float] = []

    def meta_test() -> torch.Tensor:
        seen.append(theta.item())
        return _quadratic(theta, 2.0)

    loss = meta_backward([theta, unused], lambda: _quadratic(theta, 3.0), meta_test, ALPHA)
    assert seen == [3.0]
    assert loss == 1.0
    assert theta.item() == 1.0
    torch.optim.SGD([theta, unused], BETA).step()
    assert theta.item() == pytest.approx(0.8)
    assert unused.item() == 7.0


def test_nothing_is_differentiated_through_the_first_step() -> None:
    """At 1 + 0.25 · 8 = 3 it is 2 (3 - 2); of second order it would be half as much."""
    theta = nn.Parameter(torch.tensor(1.0))
    meta_backward([theta], lambda: _quadratic(theta, 5.0), lambda: _quadratic(theta, 2.0), 0.25)
    assert theta.grad is not None
    assert theta.grad.item() == 2.0


def test_what_a_piece_sees() -> None:
    """g(t) = (k + t - 1) s, and before the language as much as at the first piece."""
    seen = visible_states(4, 100, HEARD_STRIDE)[0].sum(1).tolist()
    assert seen == [HEARD_STRIDE * (WAIT_K + more) for more in (0, 0, 1, 2)]


@pytest.fixture(scope="module")
def learned() -> tuple[SpeechTranslationModel, list[Example]]:
    """Each piece is a sound of 400 ms; read and heard it is written as it is, in two languages."""
    torch.manual_seed(4)
    config = replace(
        meta_config(GERMAN, PIECES),
        encoder=replace(ENCODER, layers=2, ctc_layer=2),
        decoder=DecoderConfig(layers=2, heads=4, ffn_width=96, tied_embeddings=True),
    )
    network = SpeechTranslationModel(config)
    sounds = torch.randn(GERMAN, 80)
    texts = torch.randint(EOS + 2, GERMAN, (8, 4))
    heard = [
        Example(sounds[text].repeat_interleave(40, 0), GERMAN, text.tolist()) for text in texts
    ]
    read = [Example(text, ENGLISH, text.tolist()) for text in texts]
    meta_train(network, [heard, read], 60)
    train(network, heard, 80)
    return network, heard


def test_a_network_learns_to_write_what_it_hears(
    learned: tuple[SpeechTranslationModel, list[Example]],
) -> None:
    """Meta-trained on both tasks and fine-tuned, piece t written with g(t) heard."""
    network, heard = learned
    written = write(network, heard[0].source, GERMAN)
    assert [piece for piece, _ in written] == list(heard[0].pieces)
    assert [ms for _, ms in written] == [80.0 * min(3 * (5 + t), 20) for t in range(4)]


def test_what_is_read_is_seen_one_way(
    learned: tuple[SpeechTranslationModel, list[Example]],
) -> None:
    network, heard = learned
    pieces = torch.tensor(heard[0].pieces)
    with torch.inference_mode():
        early, whole = (encoded(network, [part])[0] for part in (pieces[:2], pieces))
    torch.testing.assert_close(early, whole[:, :2])
