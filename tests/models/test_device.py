"""What services compute on their device is what the plain network gives on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.decoder.loading import load_decoder
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import Prompt, block_of
from earvoice.encoder.model import load_model
from earvoice.encoder.settings import EncoderSettings
from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import read_parts
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS
from earvoice.runtime.settings import load_settings
from tests.tiny_model import write_tiny_checkpoint

pytestmark = pytest.mark.torch

FRAMES = (30, 101, 400)
TOKENS = 12
LAYER = 1
CASES = [
    ("cpu", "fp32"),
    ("cpu", "bf16"),
    ("cuda", "fp32"),
    ("cuda", "bf16"),
    ("cuda", "fp16"),
]
TOLERANCES = {"fp32": 1e-4, "bf16": 0.2, "fp16": 0.03}


@pytest.fixture(params=CASES, ids="-".join)
def computing(request: pytest.FixtureRequest) -> tuple[str, str]:
    if request.param[0] == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    return request.param


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def plain(path: Path) -> SpeechTranslationModel:
    """Nothing packed, fused or rounded."""
    parts = read_parts(path)
    return build_network(parts.config, parts.tensors)


def test_states_are_those_of_the_plain_network(
    computing: tuple[str, str], path: Path, plain: SpeechTranslationModel
) -> None:
    """To what the number format can tell, and with the same labels in fp32."""
    device, precision = computing
    settings = load_settings(EncoderSettings, model_path=path, device=device, precision=precision)
    model = load_model(settings)
    compared = 0
    for frames in FRAMES:
        features = np.random.default_rng(frames).normal(size=(frames, 80)).astype(np.float32)
        expected = plain.encoder.encode(torch.from_numpy(features))
        found = model.encode(features)
        # Rounded, two labels may be equally probable, and other frames become one state.
        if found.run_lengths == tuple(expected.run_lengths.tolist()):
            compared += 1
            states = np.frombuffer(found.states, "<f4").reshape(expected.states.shape)
            np.testing.assert_allclose(states, expected.states, atol=TOLERANCES[precision], rtol=0)
        if precision == "fp32":
            assert found.frame_labels == tuple(expected.frame_labels.tolist())
    assert compared == len(FRAMES) if precision == "fp32" else compared


def test_tokens_are_those_of_the_plain_network(
    computing: tuple[str, str], path: Path, plain: SpeechTranslationModel
) -> None:
    """In fp32, with a draft and without; in all formats with logarithms that are near."""
    device, precision = computing
    settings = load_settings(DecoderSettings, model_path=path, device=device, precision=precision)
    strategy = load_decoder(settings).strategy
    states = torch.randn(20, plain.config.encoder.d_model, generator=torch.manual_seed(3))
    block = block_of(states.numpy())
    expected = greedy(plain, states)
    for draft in ((), tuple(expected[1:5]), (7, 7, 7)):
        prompt = Prompt((EOS,), draft, LAYER, forbid_end=True)
        run, progress = strategy.begin(block, prompt)
        said = [*progress.tokens]
        while len(said) < TOKENS:
            said += strategy.step([run])[0].tokens
        tokens = [token.token for token in said[:TOKENS]]
        if precision == "fp32":
            assert tokens == expected[1:]
        log_probs = teacher_forced(plain, states, [EOS, *tokens])
        found = [token.log_probability for token in said[:TOKENS]]
        np.testing.assert_allclose(found, log_probs, atol=TOLERANCES[precision], rtol=0)


@torch.inference_mode()
def greedy(network: SpeechTranslationModel, states: torch.Tensor) -> list[int]:
    cache = network.decoder.open_cache(states)
    tokens = [EOS]
    while len(tokens) <= TOKENS:
        logits, _ = network.decoder.step([tokens[-1]], [cache], [LAYER])
        logits[0, EOS] = -torch.inf
        tokens.append(int(logits[0].argmax()))
    return tokens


@torch.inference_mode()
def teacher_forced(
    network: SpeechTranslationModel, states: torch.Tensor, tokens: list[int]
) -> list[float]:
    logits, _ = network.decoder.prefill(tokens[:-1], network.decoder.open_cache(states), LAYER)
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
