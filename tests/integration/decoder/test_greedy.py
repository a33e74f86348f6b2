"""Greedy choice itself: against the reference in this repository, and what is never chosen."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, PredictedToken, Prompt, block_of
from earvoice.models.config import (
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    PolicyDefaults,
    TargetLanguage,
)
from earvoice.models.decoding import CachedDecoder

pytestmark = pytest.mark.torch

END = 2
CONFIG = ModelConfig(
    name="reference",
    version="1",
    source_language="en",
    target_languages=(TargetLanguage("de"),),
    source_pieces=76,
    target_pieces=83,
    encoder=EncoderConfig(d_model=64, heads=4, layers=4, ctc_layer=3),
    decoder=DecoderConfig(layers=2, heads=4, ffn_width=256),
    policy_defaults=PolicyDefaults(attention_layer=1),
)


@pytest.fixture(scope="module")
def golden() -> Path:
    return Path(__file__).parents[2] / "data" / "golden"


@pytest.fixture
def decoder(golden: Path) -> CachedDecoder:
    tensors = load_file(golden / "small_random_upper.safetensors")
    decoder = CachedDecoder(CONFIG).eval()
    mine = {n.removeprefix("decoder."): t for n, t in tensors.items() if n.startswith("decoder.")}
    decoder.load_state_dict(mine)
    return decoder


@pytest.fixture(scope="module")
def reference(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "small_random_upper.npz") as arrays:
        return {name: arrays[name] for name in arrays}


def decode(
    decoder: CachedDecoder, states: np.ndarray, opening: Prompt, count: int
) -> list[PredictedToken]:
    """The first `count` choices."""
    strategy = SearchStrategy(decoder)
    run, begun = strategy.begin(block_of(states), opening)
    choices = begun.tokens
    while len(choices) < count:
        choices += strategy.step([run])[0].tokens
    return choices[:count]


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("drafted", [0, 3, 1000])
def test_reference_is_reproduced(
    decoder: CachedDecoder, reference: dict[str, np.ndarray], layer: int, drafted: int
) -> None:
    """Tokens exactly, log-probabilities to 1e-4, attention to 2e-5, however much is drafted."""
    tokens = reference["utt0/tokens"].tolist()[1:]
    opening = Prompt((END,), tuple(tokens[:drafted]), layer, forbid_end=False)
    choices = decode(decoder, reference["utt0/avg/states"], opening, len(tokens))
    assert [choice.token for choice in choices] == tokens
    log_probs = torch.from_numpy(reference["utt0/logits"]).log_softmax(-1).numpy()
    np.testing.assert_allclose(
        [choice.log_probability for choice in choices],
        log_probs[np.arange(len(tokens)), tokens],
        atol=1e-4,
    )
    np.testing.assert_allclose(
        [choice.attention for choice in choices], reference[f"utt0/attention{layer}"], atol=2e-5
    )


@pytest.mark.parametrize(("forbid_end", "expected"), [(False, END), (True, 3)])
def test_padding_and_start_are_never_chosen(
    decoder: CachedDecoder,
    reference: dict[str, np.ndarray],
    expected: int,
    *,
    forbid_end: bool,
) -> None:
    """The best four tokens are the specials, in order; only allowed ones are written."""
    with torch.no_grad():
        decoder.layer_norm.weight.zero_()
        decoder.layer_norm.bias.fill_(1.0)
        decoder.output_projection.weight[:4] = torch.tensor([[9.0], [8.0], [7.0], [6.0]])
    opening = Prompt((END,), (0, 1), 1, forbid_end)
    choices = decode(decoder, reference["utt0/avg/states"], opening, 1)
    assert [choice.token for choice in choices] == [expected]
    assert choices[0].log_probability < -60


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("least", "is_empty"), [(0.0, True), (0.7, True), (0.8, False)])
def test_an_end_that_comes_first_is_likely_enough(
    decoder: CachedDecoder,
    reference: dict[str, np.ndarray],
    size: int,
    least: float,
    *,
    is_empty: bool,
) -> None:
    """Three quarters of the probability, at every place, are the end's."""
    others = CONFIG.target_pieces - 1
    with torch.no_grad():
        decoder.layer_norm.weight.zero_()
        decoder.layer_norm.bias.fill_(1.0)
        decoder.output_projection.weight.zero_()
        decoder.output_projection.weight[END] = math.log(3 * others) / CONFIG.encoder.d_model
    beam = None if size == 1 else BeamPlan(size, max_new_tokens=4)
    opening = Prompt((END, 5), (), 1, False, beam=beam, least_end_probability=least)
    strategy = SearchStrategy(decoder)
    run, begun = strategy.begin(block_of(reference["utt0/avg/states"]), opening)
    tokens = begun.tokens
    while beam and not begun.beam:
        (begun,) = strategy.step([run])
    if beam:
        tokens = min((each.tokens for each in begun.beam), key=len)
    assert (tokens[0].token == END) == is_empty
    assert math.exp(tokens[0].log_probability) == pytest.approx(0.75 if is_empty else 0.25 / others)


def test_near_ties_are_marked(decoder: CachedDecoder, reference: dict[str, np.ndarray]) -> None:
    """Two best logits closer than 1e-4 are told."""
    with torch.no_grad():
        decoder.output_projection.weight[70] = decoder.output_projection.weight[80]
    opening = Prompt((END,), (), 1, forbid_end=False)
    assert any(c.near_tie for c in decode(decoder, reference["utt0/avg/states"], opening, 20))
