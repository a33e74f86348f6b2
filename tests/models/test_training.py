"""The network learns: gradients reach every weight, and a batch is soon known by heart."""

import pytest
import torch
from torch.nn import functional

from earvoice.models.config import ModelConfig
from earvoice.models.ctc import Encoded
from earvoice.models.transformer import Dropout
from earvoice.models.translation import SpeechTranslationModel

pytestmark = pytest.mark.torch


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, lengths and tokens of two utterances, the second padded."""
    torch.manual_seed(3)
    tokens = torch.tensor([[2, 7, 9, 4, 12, 2], [2, 8, 5, 2, 1, 1]])
    return torch.randn(2, 96, 80), torch.tensor([96, 61]), tokens


def _loss(logits: torch.Tensor, encoded: Encoded, tokens: torch.Tensor, blank: int) -> torch.Tensor:
    forced = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=1
    )
    transcripts = torch.tensor([[5, 6, 7], [8, 9, 1]])
    spoken = functional.ctc_loss(
        encoded.ctc_log_probs.transpose(0, 1),
        transcripts,
        encoded.ctc_lengths,
        torch.tensor([3, 2]),
        blank=blank,
    )
    return forced + spoken


def test_learns_a_batch_by_heart(
    config: ModelConfig, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    """Under bfloat16 autocast the loss falls to a fraction, with finite gradients everywhere."""
    torch.manual_seed(0)
    network = SpeechTranslationModel(config, dropout=0.05)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        with torch.autocast("cpu", torch.bfloat16):
            output = network(*batch)
        loss = _loss(*output, batch[2], config.blank)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        missing = [name for name, p in network.named_parameters() if p.grad is None]
        assert not missing
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 4


def test_output_shapes(
    config: ModelConfig, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    """The losses find what they need, in float32."""
    logits, encoded = SpeechTranslationModel(config)(*batch)
    assert logits.shape == (2, 6, config.target_pieces)
    assert encoded.ctc_log_probs.shape == (2, 12, config.source_pieces + 1)
    assert encoded.ctc_lengths.tolist() == [12, 8]
    assert logits.dtype == encoded.ctc_log_probs.dtype == torch.float32


def test_padding_does_not_train(
    config: ModelConfig, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    """What stands in the padding changes neither outputs nor BatchNorm statistics."""
    features, lengths, tokens = batch
    network = SpeechTranslationModel(config)
    network.train()
    logits, encoded = network(features, lengths, tokens)
    noisy = features.clone()
    noisy[1, 68:] = 100.0
    same_logits, same = network(noisy, lengths, tokens)
    torch.testing.assert_close(logits, same_logits)
    torch.testing.assert_close(encoded.ctc_log_probs[1, :8], same.ctc_log_probs[1, :8])


def test_dropout_keeps_the_mean_and_the_seed() -> None:
    """The share dropped is the one asked for, the mean stays, and a seed repeats it."""
    dropout, values = Dropout(0.25), torch.ones(400, 333)
    torch.manual_seed(5)
    first = dropout(values)
    torch.manual_seed(5)
    assert torch.equal(first, dropout(values))
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.01
    assert abs(float(first.mean()) - 1.0) < 0.01
    assert torch.equal(dropout.eval()(values), values)
