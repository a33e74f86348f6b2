"""Number formats: who may compute in which."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from earvoice.models.checkpoint import add_precision_trials, load_checkpoint
from earvoice.models.config import ModelConfig
from earvoice.models.errors import ModelError
from earvoice.models.precision import (
    PrecisionTrial,
    bears,
    chosen_dtype,
    has_fast_bfloat16,
)
from tests.tiny_model import random_network, write_tiny_checkpoint

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def _trial(equal: float = 0.99, least: float = -0.3, language: str = "de") -> PrecisionTrial:
    return PrecisionTrial("bf16", language, 300, equal, least + 0.2, least)


@given(equal=st.floats(0, 1), least=st.floats(-2, 2))
def test_the_rule(equal: float, least: float) -> None:
    """What is lost is less than a point, for sure; how many texts are another is no matter."""
    assert _trial(equal, least).passed == (least > -1)
    assert not PrecisionTrial("bf16", "de", 300, 1.0, 0.0).passed


def test_every_language_must_pass() -> None:
    """A model that writes two languages has two trials to pass, each in this format."""
    assert bears("bf16", (_trial(), _trial(language="es")), ("de", "es"))
    assert not bears("bf16", (_trial(),), ("de", "es"))
    assert not bears("bf16", (_trial(), _trial(least=-1.2, language="es")), ("de", "es"))
    assert not bears("int8", (_trial(),), ("de",))
    assert not bears("bf16", (), ("de",))


def test_auto_needs_machine_or_stored_weights_and_trial() -> None:
    """bf16 is taken unasked where both speak for it; asked for, every format is computed.

    Few rows are multiplied faster with weights that are stored in 8 bits on any processor.
    """
    chosen = chosen_dtype("auto", CPU, bears_bfloat16=True)
    assert (chosen == torch.bfloat16) == has_fast_bfloat16(CPU)
    assert chosen_dtype("auto", CPU, bears_bfloat16=True, in_8_bits=True) == torch.bfloat16
    assert chosen_dtype("auto", CPU, bears_bfloat16=False, in_8_bits=True) == torch.float32
    assert chosen_dtype("auto", CPU, bears_bfloat16=False) == torch.float32
    assert chosen_dtype("bf16", CPU, bears_bfloat16=False) == torch.bfloat16
    assert chosen_dtype("int8", CPU, bears_bfloat16=False) == torch.int8


def test_int8_is_for_processors() -> None:
    """On a GPU it is refused, and fp16 on a processor, with what is allowed there."""
    with pytest.raises(ModelError, match=r"int8.*allowed there: 'fp32', 'bf16', 'fp16', 'auto'"):
        chosen_dtype("int8", torch.device("cuda"), bears_bfloat16=False)
    with pytest.raises(ModelError, match=r"fp16.*allowed there: 'fp32', 'bf16', 'int8', 'auto'"):
        chosen_dtype("fp16", CPU, bears_bfloat16=False)


def test_trials_are_kept_with_the_checkpoint(tmp_path: Path) -> None:
    """A later trial takes an earlier one's place, another language stands beside it."""
    write_tiny_checkpoint(tmp_path)
    before = load_checkpoint(tmp_path).hash
    add_precision_trials(tmp_path, (_trial(0.5), _trial(language="fr")))
    add_precision_trials(tmp_path, (_trial(),))
    config = (tmp_path / "config.json").read_text()
    assert config.count('"equal_share": 0.99') == 2
    assert '"equal_share": 0.5' not in config
    loaded = load_checkpoint(tmp_path, precision="auto")
    assert loaded.hash != before
    assert (loaded.dtype == torch.bfloat16) == has_fast_bfloat16(CPU)


def test_impossible_trials_are_refused() -> None:
    """A share beyond 1 is named."""
    with pytest.raises(ModelError, match=r"equal_share = 1\.5 is not allowed"):
        _trial(1.5)


def test_int8_network_is_near(config: ModelConfig) -> None:
    """A quantised network gives nearly the same states and logits."""
    plain, quantised = random_network(config), random_network(config)
    for network, dtype in ((plain, torch.float32), (quantised, torch.int8)):
        network.prepare_inference(dtype)
    states = plain.encoder.encode(torch.randn(200, 80)).states
    logits = [
        network.decoder.prefill([2, 5, 7], network.decoder.open_cache(states), 1)[0]
        for network in (plain, quantised)
    ]
    error = (logits[0] - logits[1]).std() / logits[0].std()
    assert error < 0.1
    features = torch.randn(90, 80)
    heard = [network.encoder.encode(features).ctc_log_probs for network in (plain, quantised)]
    error = (heard[0] - heard[1]).std() / heard[0].std()
    assert error < 0.1
