"""Whole checkpoints of the papers' format give the reference's numbers, where that data is."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import Compression
from earvoice.models.loaders.fairseq import read_fairseq
from earvoice.models.translation import SpeechTranslationModel
from tests.models.filterbank_tolerance import assert_filterbank

pytestmark = pytest.mark.torch

CASES = [
    ("small_random", strategy) for strategy in ("avg", "none", "weighted", "softmax", "fixed")
] + [("t1", "avg")]


def _network(shared_golden: Path, model: str, strategy: Compression) -> SpeechTranslationModel:
    parts = read_fairseq(shared_golden / "models" / model / "checkpoint.pt", "en", "de")
    encoder = dataclasses.replace(parts.config.encoder, compression=strategy)
    return build_network(dataclasses.replace(parts.config, encoder=encoder), parts.tensors)


def _features(shared_golden: Path, utterance: str) -> torch.Tensor:
    with np.load(shared_golden / "feats.npz") as features:
        return torch.from_numpy(features[utterance])


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_every_reference_utterance(
    shared_golden: Path, model: str, strategy: Compression, *, prepared: bool
) -> None:
    """Encoder and attention agree to 2e-5, logits to 1e-4, greedy tokens exactly."""
    network = _network(shared_golden, model, strategy)
    if prepared:
        network.prepare_inference(torch.float32)
    reference = np.load(shared_golden / f"{model}_forward.npz")
    for utterance in ("utt0", "utt1", "utt2", "tiny"):
        key = f"{strategy}/{utterance}"
        if f"{key}/encoder_out_TBC" not in reference:
            continue
        encoded = network.encoder.encode(_features(shared_golden, utterance))
        _assert_near(encoded.states, reference[f"{key}/encoder_out_TBC"][:, 0], 2e-5)
        tokens = reference[f"{key}/greedy_tokens"].tolist()
        for layer in range(1, network.config.decoder.layers + 1):
            cache = network.decoder.open_cache(encoded.states)
            logits, attention = network.decoder.prefill(tokens[:-1], cache, layer)
            _assert_near(attention, reference[f"{key}/cross_attn_mean_layer{layer - 1}"], 2e-5)
            _assert_near(logits, reference[f"{key}/tf_logits"], 1e-4)
        assert _greedy(network, encoded.states, len(tokens)) == tokens


@pytest.mark.parametrize("strategy", [strategy for model, strategy in CASES[:5]])
def test_padded_batch(shared_golden: Path, strategy: Compression) -> None:
    """Two utterances padded in one batch give the reference's states to 2e-5."""
    network = _network(shared_golden, "small_random", strategy)
    short, long = (_features(shared_golden, name) for name in ("utt0", "utt1"))
    features = torch.nn.utils.rnn.pad_sequence([short, long], batch_first=True)
    with torch.inference_mode():
        batch = network.encoder(features, torch.tensor([len(short), len(long)]))
    reference = np.load(shared_golden / "small_random_forward.npz")
    states = reference[f"{strategy}/batch2/encoder_out_TBC"]
    padding = reference[f"{strategy}/batch2/padding_mask"]
    assert batch.lengths.tolist() == (~padding).sum(1).tolist()
    for index, length in enumerate(batch.lengths.tolist()):
        _assert_near(batch.states[index, :length], states[:length, index], 2e-5)


def test_sound_to_text(shared_golden: Path) -> None:
    """From int16 sound through a loaded checkpoint: the same features, the same tokens."""
    checkpoint = load_checkpoint(
        shared_golden / "models" / "t1" / "checkpoint.pt",
        source_language="en",
        target_language="de",
    )
    waves = np.load(shared_golden / "wav_fbank.npz")
    reference = np.load(shared_golden / "t1_forward.npz")
    for utterance in ("utt0", "utt1", "utt2"):
        samples = (waves[utterance] / 32768).astype(np.float32)
        features = checkpoint.open_features()(samples)
        mean, deviation = checkpoint.normalisation.mean, checkpoint.normalisation.deviation
        expected = _features(shared_golden, utterance)
        assert_filterbank(features * deviation + mean, expected * deviation + mean)
        states = checkpoint.network.encoder.encode(features).states
        tokens = reference[f"avg/{utterance}/greedy_tokens"].tolist()
        assert _greedy(checkpoint.network, states, len(tokens)) == tokens


def _greedy(network: SpeechTranslationModel, states: torch.Tensor, count: int) -> list[int]:
    cache = network.decoder.open_cache(states)
    tokens = [2]
    while len(tokens) < count:
        logits, _ = network.decoder.step([tokens[-1]], [cache], [1])
        tokens.append(int(logits[0].argmax()))
    return tokens


def _assert_near(value: torch.Tensor, expected: np.ndarray, tolerance: float) -> None:
    torch.testing.assert_close(value, torch.from_numpy(expected), atol=tolerance, rtol=0)
