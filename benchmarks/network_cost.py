"""What one network costs in one number format with a given number of threads.

With random weights, nothing would be compressed or committed, and no draft accepted. To make the
work that of trained ones:

* **CTC labels.** The CTC head computes its product; then the logit of label t // 3 modulo 2 is
  raised in frame t. So in the translated utterance every run has three frames, and all work of
  the compression is done; a network that compresses nothing has as many states as frames.
* **Weights in 8 bits.** Those of the shipped network's decoder are rounded as its checkpoint stores
  them, since such products are computed in another way.
* **Tokens.** A hypothesis of the audio up to second s has 3.5 · s tokens. They are the model's own
  greedy choice, determined beforehand, untimed: so a draft of these is accepted, and one with other
  tokens is not.
* **EDAtt.** After each segment all tokens of the audio up to the previous segment are committed,
  and one more token was predicted: the one whose attention ended the decoder's work. It is the next
  draft, and is accepted.
* **LA-2.** A hypothesis is completed in each segment, end of sentence included. Its last two tokens
  change in the next; the tokens on which two hypotheses agree are committed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import psutil
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Prompt, StateBlock, block_of
from earvoice.models.checkpoint import load_config
from earvoice.models.config import FRAME_SHIFT_MS, SAMPLE_RATE_HZ, ModelConfig, preset
from earvoice.models.families import family_of
from earvoice.models.frontend import FeatureNormalisation, feature_stream
from earvoice.models.inference import imitates, packed_weight, quantised
from earvoice.models.precision import DTYPES, Precision
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS
from earvoice.runtime.settings import shipped_model_path

SHAPES = ((512, 512), (512, 2048), (2048, 512))
"""Inputs and outputs of the papers' linear layers."""
ROWS = (64, 256, 512)
TOKENS_PER_S = 3.5
RUN_FRAMES = 3
UNSTABLE_TOKENS = 2
RAISED = 1e4
WRONG_TOKEN = 3
"""The unknown token: never the model's choice, so that a draft ends with it."""
SHIPPED = "shipped"
FRAMES_PER_S = 1000 // FRAME_SHIFT_MS
PREFILL_TOKENS, PREFILL_STATES = 31, 134
BEAM = 5
BATCHES = (4, 16)

Policy = Literal["edatt", "la2", "la2 without drafts"]
POLICIES: tuple[Policy, ...] = ("edatt", "la2", "la2 without drafts")


def start_of(config: ModelConfig) -> tuple[int, ...]:
    """The start token, and that of the language with layers of its own where there is one.

    Any other token would begin a translation, which first writes the text that it translates.
    """
    return (EOS, *config.decoder.own_layers[:1])


def best_ms(compute: Callable[[], object], rounds: int) -> float:
    """The shortest of some rounds, after one that does not count, in milliseconds.

    With one thread this is processor time, so that other processes disturb less; with more, wall
    time.
    """
    clock_s = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    compute()
    shortest_s = float("inf")
    for _ in range(rounds):
        began_s = clock_s()
        compute()
        shortest_s = min(shortest_s, clock_s() - began_s)
    return shortest_s * 1000


def ceiling_gflops(dtype: torch.dtype, rounds: int = 5) -> float:
    """The peak speed of packed oneDNN products of the papers' sizes, in 10⁹ operations a second.

    A multiplication and an addition count as two. The best of all shapes and rounds; for int8 it
    is the bare product, without quantising and dequantising, and for bf16 that of fp32 where the
    processor has no such products.
    """
    return max(_gflops(dtype, shape, rows, rounds) for shape in SHAPES for rows in ROWS)


def _gflops(dtype: torch.dtype, shape: tuple[int, int], rows: int, rounds: int) -> float:
    inputs, outputs = shape
    operations = 2 * rows * inputs * outputs
    return operations / best_ms(_product(dtype, rows, inputs, outputs), rounds) / 1e6


def _product(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> Callable[[], object]:
    values, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    if dtype == torch.int8:
        small, matrix = values.to(dtype), weight.to(dtype).T
        return lambda: torch._int_mm(small, matrix)  # noqa: SLF001 - it has no public name
    if imitates(dtype, weight.device):
        dtype = torch.float32
    rounded, packed = values.to(dtype), packed_weight(weight.to(dtype))
    return lambda: torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - it has no public name
        rounded, packed, None, "none", [], ""
    )


class _ScriptedHead(nn.Module):
    """A CTC head whose product is computed and whose greedy labels are scripted."""

    def __init__(self, head: nn.Module, run_frames: int) -> None:
        super().__init__()
        self.head = head
        self.run_frames = run_frames

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[1, T, d] → [1, T, V+1] float32."""
        logits: torch.Tensor = self.head(hidden)
        frames = torch.arange(logits.shape[1])
        logits[0, frames, frames // self.run_frames % 2] += RAISED
        return logits


@dataclass(frozen=True)
class Segment:
    """The decoder's work in one segment, in tokens.

    Attributes:
        prefix: committed tokens, forced.
        draft_right: tokens of the draft that the model also chooses.
        draft_wrong: tokens of the draft after them, which it does not choose.
        steps: steps after the prefill, which itself predicts a token.
    """

    prefix: int
    draft_right: int
    draft_wrong: int
    steps: int


def segments(policy: Policy, seconds: float, segment_s: float) -> list[Segment]:
    """The work of each segment of an utterance; the last one is completed and committed."""
    ends = [segment_s * (index + 1) for index in range(round(seconds / segment_s))]
    known = [0, *(math.floor(TOKENS_PER_S * end) for end in ends)]
    work = []
    for index in range(len(ends)):
        before = known[index - 1] if index else 0
        # Plus one for the end-of-sentence token.
        tokens = known[index + 1] + 1
        if policy == "edatt":
            tokens = tokens if index == len(ends) - 1 else known[index] + 1
            prefix, right, wrong = before, int(index > 0), 0
        else:
            prefix = max(0, before - UNSTABLE_TOKENS)
            stable = max(0, known[index] - UNSTABLE_TOKENS)
            drafted = policy == "la2"
            right, wrong = (stable - prefix) * drafted, (known[index] - stable) * drafted
        work.append(Segment(prefix, right, wrong, max(0, tokens - prefix - right - 1)))
    return work


@dataclass(frozen=True)
class RunCost:
    """Seconds of computation: features and encoder, decoder, and both per second of audio."""

    encoder_s: float
    decoder_s: float
    real_time_factor: float


class SimultaneousRun:
    """Noise of some seconds, translated segment by segment."""

    def __init__(self, network: SpeechTranslationModel, seconds: float) -> None:
        self._network = network
        self._seconds = seconds
        self._strategy = SearchStrategy(network.decoder)
        noise = np.random.default_rng(0).normal(0, 0.1, round(seconds * SAMPLE_RATE_HZ))
        self._segment_s = network.config.policy_defaults.segment_ms / 1000
        size = round(self._segment_s * SAMPLE_RATE_HZ)
        self._sound = [
            noise[begin : begin + size].astype(np.float32) for begin in range(0, len(noise), size)
        ]
        self._clock_s = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def cost(self, policy: Policy, rounds: int) -> RunCost:
        encoder_s, blocks = self._encoder_s(rounds)
        decoder_s = 0.0
        for block, segment in zip(
            blocks, segments(policy, self._seconds, self._segment_s), strict=True
        ):
            decoder_s += self._decoder_s(block, segment, rounds)
        return RunCost(encoder_s, decoder_s, (encoder_s + decoder_s) / self._seconds)

    def _encoder_s(self, rounds: int) -> tuple[float, list[StateBlock]]:
        best_s = np.full(len(self._sound), np.inf)
        blocks: list[StateBlock] = []
        for _ in range(rounds):
            analysis = family_of(self._network.config.encoder.architecture).open_analysis()
            features_of = feature_stream(analysis, FeatureNormalisation.identity())
            features, encode = torch.empty(0, 80), self._network.encoder.open_utterance()
            blocks = []
            for index, sound in enumerate(self._sound):
                began_s = self._clock_s()
                features = torch.cat((features, features_of(sound)))
                encoded, _ = encode(features)
                block = block_of(encoded.states.numpy(), index + 1)
                best_s[index] = min(best_s[index], self._clock_s() - began_s)
                blocks.append(block)
        return float(best_s.sum()), blocks

    def _decoder_s(self, block: StateBlock, segment: Segment, rounds: int) -> float:
        opening = self._opening(block, segment)
        best_s = float("inf")
        for _ in range(rounds):
            # The strategy does not know a copy: it computes the states' keys and values again.
            fresh = replace(block)
            began_s = self._clock_s()
            run, progress = self._strategy.begin(fresh, opening)
            for _ in range(segment.steps):
                self._strategy.step([run])
            best_s = min(best_s, self._clock_s() - began_s)
            if len(progress.tokens) != segment.draft_right + 1:
                raise AssertionError(f"{len(progress.tokens) - 1} tokens of the draft stood")
        return best_s

    def _opening(self, block: StateBlock, segment: Segment) -> Prompt:
        forced = (*start_of(self._network.config), *range(5, 5 + segment.prefix))
        layer = self._network.config.policy_defaults.attention_layer
        opening = Prompt(forced, (), layer, forbid_end=True)
        run, progress = self._strategy.begin(block, opening)
        chosen = [choice.token for choice in progress.tokens]
        while len(chosen) < segment.draft_right:
            chosen += [choice.token for choice in self._strategy.step([run])[0].tokens]
        chosen = chosen[: segment.draft_right]
        while True:
            draft = (*chosen, *[WRONG_TOKEN] * segment.draft_wrong)
            opening = Prompt(forced, draft, layer, forbid_end=True)
            _, progress = self._strategy.begin(block, opening)
            stood = len(progress.tokens) - 1
            if stood >= segment.draft_right:
                return opening
            # Random weights give near ties, and in 8 bits a row's rounding depends on its batch.
            chosen[stood] = progress.tokens[stood].token


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        prefixes_s: lengths of encoder passes, in seconds.
        run_s: length of the utterance that is translated, in seconds; 0 leaves it out.
        rounds: of each measurement; the best counts.
    """

    prefixes_s: Sequence[int]
    run_s: float
    rounds: int


class NetworkCost:
    """A network with random weights, and the measurements on it."""

    def __init__(self, name: str, precision: Precision, effort: Effort) -> None:
        self._dtype = DTYPES[precision]
        self._effort = effort
        torch.manual_seed(0)
        self._network = SpeechTranslationModel(_config(name)).eval()
        if name == SHIPPED:
            _round_to_8_bits(self._network.decoder)
        self._script(1)
        self._gflop = {seconds: self._counted_gflop(seconds) for seconds in effort.prefixes_s}
        self._network.prepare_inference(self._dtype)
        self._strategy = SearchStrategy(self._network.decoder)

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
        # Measured before and after, because another process may slow down part of the run.
        ceiling = max(ceiling, ceiling_gflops(self._dtype))
        facts["ceiling_gflops"] = ceiling
        for seconds in self._gflop:
            facts[f"encoder_{seconds}s_share"] = facts[f"encoder_{seconds}s_gflops"] / ceiling
        facts["final_mib"] = psutil.Process().memory_info().rss / 2**20
        return facts

    def _decoder_facts(self) -> dict[str, float]:
        layer = self._network.config.policy_defaults.attention_layer
        start = start_of(self._network.config)
        forced = (*start, *range(5, 5 + PREFILL_TOKENS - len(start)))
        opening = Prompt(forced, (), layer, forbid_end=True)
        beam = Prompt(forced, (), layer, forbid_end=True, beam=BeamPlan(BEAM, max_new_tokens=1000))
        # One block for each round: the strategy keeps what it has computed of a block.
        blocks = iter([self._states() for _ in range(self._effort.rounds + 1)])
        facts = {
            "prefill_ms": best_ms(
                lambda: self._strategy.begin(next(blocks), opening), self._effort.rounds
            ),
            "step_ms": self._step_ms(opening, 1),
            "beam_step_ms": self._step_ms(beam, 1),
        }
        return facts | {f"step_of_{n}_ms": self._step_ms(opening, n) for n in BATCHES}

    def _step_ms(self, opening: Prompt, batch: int) -> float:
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
        # One encoder time for both, whose work is the same: its noise would hide the difference.
        encoder_s = facts["run_encoder_s"]
        whole_s = {name: encoder_s + facts[f"{name}_decoder_s"] for name in ("edatt", "la2")}
        facts["la2_to_edatt"] = whole_s["la2"] / whole_s["edatt"]
        return facts

    def _states(self) -> StateBlock:
        width = self._network.config.encoder.d_model
        values = np.random.default_rng(0).normal(size=(PREFILL_STATES, width)).astype(np.float32)
        return block_of(values)

    def _script(self, run_frames: int) -> None:
        encoder = self._network.encoder
        owner, name = (encoder.ctc, "head") if hasattr(encoder, "ctc") else (encoder, "ctc_fc")
        head = getattr(owner, name)
        inner = head.head if isinstance(head, _ScriptedHead) else head
        setattr(owner, name, _ScriptedHead(inner, run_frames))

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


def _round_to_8_bits(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.ndim == 2:
            values, scales = quantised(parameter.detach())
            parameter.data.copy_(values * scales)


def _config(name: str) -> ModelConfig:
    return load_config(shipped_model_path()) if name == SHIPPED else preset(name)
