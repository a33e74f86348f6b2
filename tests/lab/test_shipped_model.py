"""The default model in the repository."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from earvoice.models.checkpoint import load_checkpoint, load_config
from earvoice.models.translation import parameter_count
from earvoice.models.vocabulary import EOS
from earvoice.training.model_shape import first_model
from earvoice.training.transcription import ctc_tokens, greedy_translations

pytestmark = pytest.mark.torch
SHIPPED = Path(__file__).parents[2] / "models" / "earvoice-en-de"


def test_the_shipped_model_is_small() -> None:
    """At most six million parameters and twelve megabytes, in the shape that the recipe makes."""
    checkpoint = load_checkpoint(SHIPPED)
    config = checkpoint.config
    assert config == first_model(config.source_pieces, config.target_pieces)
    assert parameter_count(config) <= 6_000_000
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 12_000_000


def test_its_parameters_are_those_it_stores() -> None:
    """What it says of its size is what its file holds, statistics not counted."""
    tensors = load_file(SHIPPED / "model.safetensors")
    learned = {
        name: tensor.numel()
        for name, tensor in tensors.items()
        if not name.startswith("normalisation.") and ".running_" not in name
    }
    assert parameter_count(load_config(SHIPPED)) == sum(learned.values())


@pytest.mark.parametrize("level", [0.0, 1e-4, 1e-2])
def test_silence_and_noise_say_nothing(level: float) -> None:
    """Five seconds without speech give no translation, and less of a transcript than commits."""
    checkpoint = load_checkpoint(SHIPPED)
    noise = level * torch.randn(80_000, generator=torch.Generator().manual_seed(1))
    encoded = checkpoint.network.encoder.encode(checkpoint.open_features().accept(noise.numpy()))
    assert len(ctc_tokens(encoded, checkpoint.config.blank)) < 2
    assert greedy_translations(checkpoint.network, [encoded], [EOS]) == [[]]
