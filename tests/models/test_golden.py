"""The networks give the numbers of the papers' code, on reference data in this repository."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from earvoice.models.config import (
    Compression,
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    SubsamplerConfig,
    TargetLanguage,
)
from earvoice.models.conformer import ConformerLayer
from earvoice.models.ctc import Encoded, compress
from earvoice.models.decoding import CachedDecoder
from earvoice.models.relative_attention import position_rows

pytestmark = pytest.mark.torch

STRATEGIES: tuple[Compression, ...] = ("avg", "none", "weighted", "softmax", "fixed")
CONFIG = ModelConfig(
    name="small_random",
    version="1",
    source_language="en",
    target_languages=(TargetLanguage("de"),),
    source_pieces=76,
    target_pieces=83,
    encoder=EncoderConfig(
        d_model=64,
        heads=4,
        layers=4,
        ctc_layer=3,
        positions="released",
        subsampler=SubsamplerConfig(channels=128),
    ),
    decoder=DecoderConfig(layers=2, heads=4, ffn_width=256),
    policy_defaults=PolicyDefaults(attention_layer=1),
)


@pytest.fixture(scope="module")
def tensors(golden: Path) -> dict[str, torch.Tensor]:
    """Weights of the upper half of the reference network."""
    return load_file(golden / "small_random_upper.safetensors")


@pytest.fixture(scope="module")
def reference(golden: Path) -> dict[str, torch.Tensor]:
    with np.load(golden / "small_random_upper.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _compressed(
    tensors: dict[str, torch.Tensor], states: torch.Tensor, strategy: Compression
) -> Encoded:
    head = _part(tensors, "encoder.ctc_fc.")
    log_probs = torch.nn.functional.linear(states, head["weight"], head["bias"]).log_softmax(-1)
    return compress(states[None], torch.tensor([len(states)]), log_probs[None], strategy)


def _decoder(tensors: dict[str, torch.Tensor]) -> CachedDecoder:
    decoder = CachedDecoder(CONFIG).eval()
    decoder.load_state_dict(_part(tensors, "decoder."))
    return decoder


@pytest.mark.parametrize("utterance", ["utt0", "tiny"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_states_after_compression(
    tensors: dict[str, torch.Tensor],
    reference: dict[str, torch.Tensor],
    strategy: Compression,
    utterance: str,
) -> None:
    """Compression and the Conformer layer above it give the reference's states to 2e-5."""
    compressed = _compressed(tensors, reference[f"{utterance}/ctc_layer_out"], strategy)
    layer = ConformerLayer(CONFIG.encoder).eval()
    layer.load_state_dict(_part(tensors, "encoder.layers.3."), strict=False)
    frames = compressed.states.shape[1]
    rows = position_rows("released", frames, 64)
    states = layer(compressed.states, frames=frames, rows=rows)[0]
    torch.testing.assert_close(
        states, reference[f"{utterance}/{strategy}/states"], atol=2e-5, rtol=0
    )


@pytest.mark.parametrize("utterance", ["utt0", "tiny"])
def test_runs_of_labels(
    tensors: dict[str, torch.Tensor], reference: dict[str, torch.Tensor], utterance: str
) -> None:
    """Each state's label and number of frames are the reference's, exactly."""
    compressed = _compressed(tensors, reference[f"{utterance}/ctc_layer_out"], "avg")
    runs = torch.stack((compressed.labels[0], compressed.run_lengths[0]), dim=1)
    assert torch.equal(runs, reference[f"{utterance}/ctc_groups"])


@pytest.mark.parametrize("layer", [1, 2])
def test_teacher_forcing(
    tensors: dict[str, torch.Tensor], reference: dict[str, torch.Tensor], layer: int
) -> None:
    """One parallel pass gives the reference's logits to 1e-4 and cross-attention to 2e-5."""
    decoder = _decoder(tensors)
    tokens = reference["utt0/tokens"].tolist()[:-1]
    cache = decoder.open_cache(reference["utt0/avg/states"])
    logits, attention = decoder.prefill(tokens, cache, layer)
    torch.testing.assert_close(logits, reference["utt0/logits"], atol=1e-4, rtol=0)
    torch.testing.assert_close(attention, reference[f"utt0/attention{layer}"], atol=2e-5, rtol=0)


def test_greedy_tokens(
    tensors: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]
) -> None:
    """Greedy decoding step by step writes the reference's tokens."""
    decoder = _decoder(tensors)
    expected = reference["utt0/tokens"].tolist()
    cache = decoder.open_cache(reference["utt0/avg/states"])
    tokens = expected[:1]
    while len(tokens) < len(expected):
        logits, _ = decoder.step([tokens[-1]], [cache], [1])
        tokens.append(int(logits[0].argmax()))
    assert tokens == expected
