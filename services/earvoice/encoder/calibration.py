"""What a live session costs the encoder, measured at the start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from earvoice.encoder.audio_format import Samples
from earvoice.encoder.network import Network
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.runtime.capacity import SegmentCost

PREFIX_S = 10
"""The utterance a segment is measured in: the middle of one that is cut after 20 s."""

PASSES = 3
TIME_LIMIT_S = 1.5


def measure_segment_cost(network: Network, clock_s: Callable[[], float]) -> SegmentCost:
    """Encode an utterance of noise as often as there is time for; the fastest pass counts.

    What else the machine does can only slow a pass down.

    Args:
        network: the model, loaded.
        clock_s: see `computation_clock`.
    """
    noise = np.random.default_rng(0).normal(0, 0.1, PREFIX_S * SAMPLE_RATE_HZ).astype(np.float32)
    segment = network.facts.default_segment_ms * SAMPLE_RATE_HZ // 1000
    began_s = clock_s()
    passes_s = [_pass_s(network, noise, segment, clock_s)]
    while len(passes_s) < PASSES and clock_s() - began_s < TIME_LIMIT_S:
        passes_s.append(_pass_s(network, noise, segment, clock_s))
    return SegmentCost(min(passes_s))


def _pass_s(network: Network, noise: Samples, segment: int, clock_s: Callable[[], float]) -> float:
    """Return how long the utterance's last segment takes."""
    features, judge = network.open_features(), network.open_judge()
    earlier = features.accept(noise[:-segment])
    judge.accept(noise[:-segment])
    began_s = clock_s()
    judge.accept(noise[-segment:])
    network.encode(np.concatenate([earlier, features.accept(noise[-segment:])]))
    return clock_s() - began_s
