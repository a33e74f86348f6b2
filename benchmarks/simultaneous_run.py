"""A whole simultaneous translation of one utterance, as encoder and decoder compute it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from scripted_work import Policy, Segment, segments

from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.strategies.base import Opening
from earvoice.decoder.strategies.search import SearchStrategy
from earvoice.models.frontend import FeatureNormalisation, FeatureStream, Filterbank
from earvoice.models.translation import SpeechTranslationModel

RATE_HZ = 16_000
SEGMENT_S = 0.8
START = 2
WRONG_TOKEN = 3
"""The unknown token: never the model's choice, so that a draft ends with it."""


@dataclass(frozen=True)
class RunCost:
    """Seconds of computation: features and encoder, decoder, and both by a second of audio."""

    encoder_s: float
    decoder_s: float
    real_time_factor: float


class SimultaneousRun:
    """Noise of some seconds, translated segment by segment.

    Args:
        network: prepared for inference, with a scripted CTC head.
        seconds: length of the utterance.
    """

    def __init__(self, network: SpeechTranslationModel, seconds: float) -> None:
        self._network = network
        self._seconds = seconds
        self._strategy = SearchStrategy(network.decoder, torch.device("cpu"))
        noise = np.random.default_rng(0).normal(0, 0.1, round(seconds * RATE_HZ))
        size = round(SEGMENT_S * RATE_HZ)
        self._sound = [
            noise[begin : begin + size].astype(np.float32) for begin in range(0, len(noise), size)
        ]
        self._clock_s = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def cost(self, policy: Policy, rounds: int) -> RunCost:
        """The cost of the whole utterance; each part of it the best of some rounds."""
        encoder_s, blocks = self._encoder_s(rounds)
        decoder_s = 0.0
        for block, segment in zip(blocks, segments(policy, self._seconds, SEGMENT_S), strict=True):
            decoder_s += self._decoder_s(block, segment, rounds)
        return RunCost(encoder_s, decoder_s, (encoder_s + decoder_s) / self._seconds)

    def _encoder_s(self, rounds: int) -> tuple[float, list[StateBlock]]:
        best_s = np.full(len(self._sound), np.inf)
        blocks: list[StateBlock] = []
        for _ in range(rounds):
            stream = FeatureStream(Filterbank(), _no_normalisation())
            features = torch.empty(0, 80)
            blocks = []
            for index, sound in enumerate(self._sound):
                began_s = self._clock_s()
                features = torch.cat((features, stream.accept(sound)))
                states = self._network.encoder.encode(features).states
                data = states.numpy().tobytes()
                best_s[index] = min(best_s[index], self._clock_s() - began_s)
                count, width = states.shape
                states_id = StatesId(0, index + 1)
                blocks.append(StateBlock(states_id, count, width, ElementType.FLOAT32, data))
        return float(best_s.sum()), blocks

    def _decoder_s(self, block: StateBlock, segment: Segment, rounds: int) -> float:
        opening = self._opening(block, segment)
        best_s = float("inf")
        for _ in range(rounds):
            # A copy is new to the strategy: it computes keys and values of the states anew.
            fresh = StateBlock(
                block.states_id, block.state_count, block.dimension, block.element_type, block.data
            )
            began_s = self._clock_s()
            run, progress = self._strategy.begin(fresh, opening)
            for _ in range(segment.steps):
                self._strategy.step([run])
            best_s = min(best_s, self._clock_s() - began_s)
            if len(progress.choices) != segment.draft_right + 1:
                raise AssertionError(f"{len(progress.choices) - 1} tokens of the draft stood")
        return best_s

    def _opening(self, block: StateBlock, segment: Segment) -> Opening:
        forced = (START, *range(5, 5 + segment.prefix))
        layer = self._network.config.policy_defaults.attention_layer
        opening = Opening(forced, (), layer, forbid_end=True)
        run, progress = self._strategy.begin(block, opening)
        chosen = [choice.token for choice in progress.choices]
        while len(chosen) < segment.draft_right:
            chosen += [choice.token for choice in self._strategy.step([run])[0].choices]
        chosen = chosen[: segment.draft_right]
        while True:
            draft = (*chosen, *[WRONG_TOKEN] * segment.draft_wrong)
            opening = Opening(forced, draft, layer, forbid_end=True)
            _, progress = self._strategy.begin(block, opening)
            stood = len(progress.choices) - 1
            if stood >= segment.draft_right:
                return opening
            # Random weights choose between near ties, and 8 bits round a row beside others anew.
            chosen[stood] = progress.choices[stood].token


def _no_normalisation() -> FeatureNormalisation:
    return FeatureNormalisation(torch.zeros(80), torch.ones(80))
