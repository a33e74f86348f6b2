"""`benchmarks/network_cost.py` times what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.network_cost import start_of
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import preset
from tests.tiny_model import write_tiny_checkpoint

pytestmark = pytest.mark.torch


def test_a_prefill_writes_no_text_to_translate_first(tmp_path: Path) -> None:
    """Where some languages are translated from another, it is of that one."""
    write_tiny_checkpoint(tmp_path, translating=True)
    decoder = load_checkpoint(tmp_path).network.transformer_decoder
    assert decoder.is_translated((2, 5))
    assert not decoder.is_translated((*start_of(decoder.config), 5))
    assert start_of(preset("paper")) == (2,)
