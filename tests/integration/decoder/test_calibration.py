"""What a segment costs the decoder."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from earvoice.decoder.loading import STEPS, load_decoder, measure_segment_cost
from earvoice.decoder.settings import DecoderSettings
from tests.tiny_model import write_tiny_checkpoint

pytestmark = pytest.mark.torch


def test_prefills_are_each_sessions_own_and_steps_are_shared(tiny):
    """With a clock that ticks once a reading, everything takes a tick: eight steps in common."""
    clock_s = itertools.count(0, 0.125)
    cost = measure_segment_cost(tiny.model, tiny.strategy, lambda: next(clock_s))
    assert cost == (0.125, STEPS * 0.125)


def test_where_a_text_is_translated_it_is_prefilled_and_stepped_as_well(tmp_path: Path) -> None:
    """It is written before the clock is read."""
    write_tiny_checkpoint(tmp_path, translating=True)
    loaded = load_decoder(DecoderSettings(model_path=tmp_path, device="cpu"))
    clock_s = itertools.count(0, 0.125)
    cost = measure_segment_cost(loaded.model, loaded.strategy, lambda: next(clock_s))
    assert cost == (2 * 0.125, 2 * STEPS * 0.125)


@pytest.mark.parametrize("positions", [16, 48])
def test_a_hypothesis_has_as_many_tokens_as_there_are_positions(tmp_path, positions):
    """What is measured is as much of a live segment as fits."""
    write_tiny_checkpoint(tmp_path, positions=positions)
    loaded = load_decoder(DecoderSettings(model_path=tmp_path, device="cpu"))
    clock_s = itertools.count(0, 0.125)
    cost = measure_segment_cost(loaded.model, loaded.strategy, lambda: next(clock_s))
    assert cost == (0.125, STEPS * 0.125)


def test_a_real_clock_finds_a_cost(tiny):
    """Neither part of it is negative."""
    own_s, shared_s = measure_segment_cost(tiny.model, tiny.strategy, time.thread_time)
    assert own_s > 0
    assert shared_s >= 0
