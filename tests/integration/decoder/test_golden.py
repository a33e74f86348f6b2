"""The service gives what the papers' code gave."""

from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.decoder.loading import load_decoder
from earvoice.decoder.settings import DecoderSettings
from tests.integration.decoder.caller import attention_of
from tests.integration.decoder.conftest import Serve

pytestmark = pytest.mark.torch

GREEDY_LAYER = 3


@pytest.fixture(scope="session")
def forward(shared_golden: Path) -> dict[str, np.ndarray]:
    with np.load(shared_golden / "t1_forward.npz") as arrays:
        return {name: arrays[name] for name in arrays if "layer" not in name or "cross" in name}


@pytest.mark.parametrize("utterance", ["utt0", "utt1", "utt2", "tiny"])
async def test_trained_toy_gives_the_reference(
    serve: Serve, shared_golden: Path, forward: dict[str, np.ndarray], utterance: str
) -> None:
    """Same greedy tokens; log-probabilities to 1e-4, attention to 2e-5; drafted or not."""
    settings = DecoderSettings(
        model_path=shared_golden / "models" / "t1" / "checkpoint.pt",
        target_language="de",
        device="cpu",
    )
    loaded = load_decoder(settings)
    running = await serve(loaded.model, loaded.strategy)
    expected = forward[f"avg/{utterance}/greedy_tokens"].tolist()[1:]
    log_probs = torch.from_numpy(forward[f"avg/{utterance}/greedy_logprobs"]).numpy()
    caller = running.caller()
    await caller.open(attention_layer=GREEDY_LAYER)
    await caller.states(forward[f"avg/{utterance}/encoder_out_TBC"][:, 0])
    for generation_id, draft in enumerate(([], expected, [*expected[:5], 4, 4]), start=1):
        found = await caller.generate(generation_id, draft=draft, max_new_tokens=len(expected))
        assert found.tokens == expected
        chosen = [log_probs[i, token] for i, token in enumerate(expected)]
        np.testing.assert_allclose([s.log_probability for s in found.steps], chosen, atol=1e-4)
        rows = forward[f"avg/{utterance}/cross_attn_mean_layer{GREEDY_LAYER - 1}"]
        np.testing.assert_allclose(attention_of(found.steps), rows, atol=2e-5)
