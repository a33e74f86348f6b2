"""What one network costs in one number format with so many threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil
import torch
from product_ceiling import ceiling_gflops
from scripted_work import POLICIES, RUN_FRAMES, ScriptedHead
from simultaneous_run import SimultaneousRun
from stopwatch import best_ms
from torch.utils.flop_counter import FlopCounterMode

from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import BeamPlan, Opening
from earvoice.decoder.strategies.search import SearchStrategy
from earvoice.models.checkpoint import load_config
from earvoice.models.config import ModelConfig
from earvoice.models.precision import DTYPES, Precision
from earvoice.models.preset import preset
from earvoice.models.translation import SpeechTranslationModel
from earvoice.runtime.model_settings import shipped_model_path

SHIPPED = "shipped"
FRAMES_PER_S = 100
PREFILL_TOKENS, PREFILL_STATES = 31, 134
BEAM = 5
BATCHES = (4, 16)
START = 2


@dataclass(frozen=True)
class Effort:
    """How long is measured.

    Attributes:
        prefixes_s: lengths of encoder passes, in seconds.
        run_s: length of the utterance that is translated; 0 leaves it out.
        rounds: of each measurement; the best counts.
    """

    prefixes_s: Sequence[int]
    run_s: float
    rounds: int


class NetworkCost:
    """A network with random weights, and the measurements on it.

    Args:
        name: of a preset, or `shipped` for the shipped model's sizes.
        precision: its number format.
        effort: how long is measured.
    """

    def __init__(self, name: str, precision: Precision, effort: Effort) -> None:
        self._dtype = DTYPES[precision]
        self._effort = effort
        torch.manual_seed(0)
        self._network = SpeechTranslationModel(_config(name)).eval()
        self._script(1)
        self._gflop = {seconds: self._counted_gflop(seconds) for seconds in effort.prefixes_s}
        self._network.prepare_inference(self._dtype)
        self._strategy = SearchStrategy(self._network.decoder, torch.device("cpu"))

    @torch.inference_mode()
    def measure(self) -> dict[str, float]:
        """All numbers by name: milliseconds, 10⁹ operations a second, shares, factors, MiB."""
        ceiling = ceiling_gflops(self._dtype)
        facts = {"resident_mib": psutil.Process().memory_info().rss / 2**20}
        for seconds, gflop in self._gflop.items():
            features = torch.randn(seconds * FRAMES_PER_S, 80)
            taken_ms = best_ms(lambda: self._network.encoder.encode(features), self._effort.rounds)  # noqa: B023 - called at once
            facts[f"encoder_{seconds}s_ms"] = taken_ms
            facts[f"encoder_{seconds}s_gflops"] = gflop / taken_ms * 1000
        facts |= self._decoder_facts()
        if self._effort.run_s:
            facts |= self._run_facts()
        # Before and after, because another process may slow a part of the run down.
        ceiling = max(ceiling, ceiling_gflops(self._dtype))
        facts["ceiling_gflops"] = ceiling
        for seconds in self._gflop:
            facts[f"encoder_{seconds}s_share"] = facts[f"encoder_{seconds}s_gflops"] / ceiling
        facts["peak_mib"] = psutil.Process().memory_info().rss / 2**20
        return facts

    def _decoder_facts(self) -> dict[str, float]:
        layer = self._network.config.policy_defaults.attention_layer
        forced = (START, *range(5, 4 + PREFILL_TOKENS))
        opening = Opening(forced, (), layer, forbid_end=True)
        beam = Opening(forced, (), layer, forbid_end=True, beam=BeamPlan(BEAM, max_new_tokens=1000))
        facts = {
            "prefill_ms": best_ms(
                lambda: self._strategy.begin(self._states(), opening), self._effort.rounds
            ),
            "step_ms": self._step_ms(opening, 1),
            "beam_step_ms": self._step_ms(beam, 1),
        }
        return facts | {f"step_of_{n}_ms": self._step_ms(opening, n) for n in BATCHES}

    def _step_ms(self, opening: Opening, batch: int) -> float:
        runs = [self._strategy.begin(self._states(), opening)[0] for _ in range(batch)]
        return best_ms(lambda: self._strategy.step(runs), 3 * self._effort.rounds)

    def _run_facts(self) -> dict[str, float]:
        self._script(RUN_FRAMES)
        run = SimultaneousRun(self._network, self._effort.run_s)
        facts = {}
        rounds = max(2, self._effort.rounds // 3)
        for policy in POLICIES:
            cost = run.cost(policy, rounds)
            name = policy.replace(" ", "_")
            facts[f"{name}_rtf"] = cost.real_time_factor
            facts[f"{name}_decoder_s"] = cost.decoder_s
            facts.setdefault("run_encoder_s", cost.encoder_s)
        # The encoder's work is the same: its own scatter would hide the difference.
        encoder_s = facts["run_encoder_s"]
        whole_s = {name: encoder_s + facts[f"{name}_decoder_s"] for name in ("edatt", "la2")}
        facts["la2_to_edatt"] = whole_s["la2"] / whole_s["edatt"]
        return facts

    def _states(self) -> StateBlock:
        width = self._network.config.encoder.d_model
        values = np.random.default_rng(0).normal(size=(PREFILL_STATES, width)).astype(np.float32)
        return StateBlock(
            StatesId(0, 1), PREFILL_STATES, width, ElementType.FLOAT32, values.tobytes()
        )

    def _script(self, run_frames: int) -> None:
        encoder = self._network.encoder
        head = encoder.ctc_fc
        inner = head.head if isinstance(head, ScriptedHead) else head
        encoder.ctc_fc = ScriptedHead(inner, run_frames)

    @torch.inference_mode()
    def _counted_gflop(self, seconds: int) -> float:
        """10⁹ operations of products and convolutions in one pass, before anything is fused.

        Positions are left out: their projection is computed once and kept.
        """
        with FlopCounterMode(display=False) as counter:
            self._network.encoder.encode(torch.randn(seconds * FRAMES_PER_S, 80))
        positions = sum(
            sum(counts.values())
            for module, counts in counter.get_flop_counts().items()
            if module.endswith("pos_proj")
        )
        return (counter.get_total_flops() - positions) / 1e9


def _config(name: str) -> ModelConfig:
    return load_config(shipped_model_path()) if name == SHIPPED else preset(name)
