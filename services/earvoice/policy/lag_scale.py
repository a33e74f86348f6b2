"""From a word lag to the parameter that a policy would need for it, roughly.

Each scale is monotone: more lag never gives a parameter that speaks sooner. That is all the control
relies on. The constants, measured with the shipped model, make it begin near its goal: a stream of
twenty words has no time to find it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from earvoice.policy.decisions.align_att import AlignAttParameters
from earvoice.policy.decisions.edatt import EdattParameters
from earvoice.policy.decisions.factory import PolicyParameters
from earvoice.policy.decisions.frame_schedule import FrameScheduleParameters
from earvoice.policy.decisions.hold_n import HoldNParameters
from earvoice.policy.decisions.local_agreement import LocalAgreementParameters
from earvoice.policy.decisions.offline import OfflineParameters
from earvoice.policy.decisions.shared_prefix import SharedPrefixParameters
from earvoice.policy.decisions.strided_wait_k import StridedWaitKParameters
from earvoice.policy.decisions.wait_k import WORD_DURATION_MS, WaitKParameters
from earvoice.policy.stream_options import StreamOptions

TOKEN_MS = 150.0
STATE_MS = 150.0
FAST_ALPHA, FAST_WAIT_MS = 0.6, 700.0
SLOW_ALPHA, SLOW_WAIT_MS = 0.03, 2300.0
SHORTEST_SEGMENT_MS, LONGEST_SEGMENT_MS = 200, 10_000
SEGMENT_STEP_MS = 10


def has_lag_parameter(parameters: PolicyParameters) -> bool:
    """Say whether a policy has something to move: a schedule and the offline policy have not."""
    return not isinstance(parameters, (FrameScheduleParameters, OfflineParameters))


def options_at_lag(options: StreamOptions, lag_ms: float) -> StreamOptions:
    """Return the options with the policy's own parameter at a place on its scale.

    LA-n and SP-n speak after n segments: theirs is the segment's duration.

    Args:
        options: the policy's other parameters stay.
        lag_ms: 0 or more.
    """
    parameters = options.policy
    if isinstance(parameters, LocalAgreementParameters | SharedPrefixParameters):
        return replace(options, segment_ms=_segment_ms(lag_ms, parameters.n))
    # A word waits half a segment for the end of its own.
    wait_ms = max(0.0, lag_ms - options.segment_ms / 2)
    return replace(options, policy=_parameters_at(parameters, wait_ms))


def _parameters_at(parameters: PolicyParameters, wait_ms: float) -> PolicyParameters:
    match parameters:
        case EdattParameters():
            return replace(parameters, alpha=_alpha(wait_ms))
        case AlignAttParameters():
            return replace(parameters, frames=_count(wait_ms, STATE_MS, 1, 256))
        case HoldNParameters():
            return replace(parameters, n=_count(wait_ms, TOKEN_MS, 0, 64))
        case WaitKParameters():
            return replace(parameters, k=_count(wait_ms, WORD_DURATION_MS, 1, 64))
        case StridedWaitKParameters():
            stride_ms = parameters.stride_ms or (parameters.stride_words or 1) * WORD_DURATION_MS
            return replace(parameters, k=_count(wait_ms, stride_ms, 1, 64))
    return parameters


def _count(wait_ms: float, unit_ms: float, lowest: int, highest: int) -> int:
    return max(lowest, min(highest, round(wait_ms / unit_ms)))


def _alpha(wait_ms: float) -> float:
    """Equal steps of lag are equal factors of alpha, as on the curves of Papi 2023."""
    slowness = (wait_ms - FAST_WAIT_MS) / (SLOW_WAIT_MS - FAST_WAIT_MS)
    return min(1.0, FAST_ALPHA * math.exp(slowness * math.log(SLOW_ALPHA / FAST_ALPHA)))


def _segment_ms(lag_ms: float, n: int) -> int:
    steps = round(lag_ms / n / SEGMENT_STEP_MS)
    return max(SHORTEST_SEGMENT_MS, min(LONGEST_SEGMENT_MS, steps * SEGMENT_STEP_MS))
