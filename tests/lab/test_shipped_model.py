"""The default model in the repository."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.translation import parameter_count
from earvoice.training.model_shape import grown_model
from earvoice.training.target_text import TargetText
from earvoice.training.transcription import ctc_tokens, greedy_translations

pytestmark = pytest.mark.torch
SHIPPED = Path(__file__).parents[2] / "models" / "earvoice-en-x-small"


def test_the_shipped_model_is_small() -> None:
    """At most seven million parameters and 15 megabytes, in the shape that the recipe makes."""
    checkpoint = load_checkpoint(SHIPPED)
    config = checkpoint.config
    made = grown_model(config.source_pieces, config.target_pieces)
    assert replace(config, policy_defaults=made.policy_defaults) == made
    assert parameter_count(config) <= 7_000_000
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 15_000_000


@pytest.mark.parametrize("level", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("language", ["de", "es"])
def test_silence_and_noise_say_nothing(level: float, language: str) -> None:
    """Five seconds without speech give no translation, and less of a transcript than commits."""
    checkpoint = load_checkpoint(SHIPPED)
    noise = level * torch.randn(80_000, generator=torch.Generator().manual_seed(1))
    encoded = checkpoint.network.encoder.encode(checkpoint.open_features().accept(noise.numpy()))
    assert len(ctc_tokens(encoded, checkpoint.config.blank)) < 2
    opening = TargetText.of_checkpoint(checkpoint).opening(language)
    assert greedy_translations(checkpoint.network, [encoded], opening) == [[]]
