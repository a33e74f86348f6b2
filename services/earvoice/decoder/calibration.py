"""What a live session costs the decoder, measured at the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from earvoice.decoder.model import ServedModel
from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import Opening, Strategy
from earvoice.runtime.capacity import SegmentCost, fit_cost

# A segment in the middle of an utterance of 20 s, in the shipped model's language.
STATES = 100
PREFIX_TOKENS = 40
DRAFT_TOKENS = 8
STEPS = 8

MANY = 8
REPEATS = 3


@dataclass(frozen=True)
class DecoderCalibration:
    """Measures on silence; the fastest of some repeats counts.

    What else the machine does can only slow a computation down.

    Attributes:
        model: the model served.
        strategy: what computes it; nobody else uses it meanwhile.
        clock_s: see `computation_clock`.
    """

    model: ServedModel
    strategy: Strategy[Any]
    clock_s: Callable[[], float]

    def segment_cost(self) -> SegmentCost:
        """Return the cost of one prefill a session, and of steps that all sessions share."""
        prefills_s, runs = [], []
        for _ in range(MANY):
            began_s = self.clock_s()
            runs.append(self.strategy.begin(self._states(), self._opening())[0])
            prefills_s.append(self.clock_s() - began_s)
        one_s, many_s = self._step_s(runs[:1]), self._step_s(runs)
        return fit_cost(min(prefills_s), STEPS * one_s, STEPS * many_s, MANY)

    def _step_s(self, runs: list[Any]) -> float:
        durations_s = []
        for _ in range(REPEATS):
            began_s = self.clock_s()
            self.strategy.step(runs)
            durations_s.append(self.clock_s() - began_s)
        return min(durations_s)

    def _opening(self) -> Opening:
        end = self.model.tokens.end_token
        layer = self.model.facts.default_attention_layer
        forced = (end,) * (1 + PREFIX_TOKENS)
        return Opening(forced, (end,) * DRAFT_TOKENS, layer, forbid_end=True)

    def _states(self) -> StateBlock:
        dimension = self.model.dimension
        data = bytes(STATES * dimension * ElementType.FLOAT32.size_bytes)
        return StateBlock(StatesId(0, 1), STATES, dimension, ElementType.FLOAT32, data)
