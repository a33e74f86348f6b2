"""From a policy's parameters to a fresh policy, and to what it needs of its stream."""

from __future__ import annotations

from earvoice.policy.decisions.align_att import AlignAttParameters, AlignAttPolicy
from earvoice.policy.decisions.base import DecisionPolicy
from earvoice.policy.decisions.edatt import EdattParameters, EdattPolicy
from earvoice.policy.decisions.frame_schedule import FrameScheduleParameters, FrameSchedulePolicy
from earvoice.policy.decisions.hold_n import HoldNParameters, HoldNPolicy
from earvoice.policy.decisions.local_agreement import (
    LocalAgreementParameters,
    LocalAgreementPolicy,
)
from earvoice.policy.decisions.offline import OfflineParameters, OfflinePolicy
from earvoice.policy.decisions.shared_prefix import SharedPrefixParameters, SharedPrefixPolicy
from earvoice.policy.decisions.strided_wait_k import StridedWaitKParameters, StridedWaitKPolicy
from earvoice.policy.decisions.wait_k import WaitKParameters, WaitKPolicy

PolicyParameters = (
    EdattParameters
    | AlignAttParameters
    | LocalAgreementParameters
    | SharedPrefixParameters
    | HoldNParameters
    | WaitKParameters
    | StridedWaitKParameters
    | FrameScheduleParameters
    | OfflineParameters
)

POLICY_NAMES = tuple(
    policy.name
    for policy in (
        EdattPolicy,
        AlignAttPolicy,
        LocalAgreementPolicy,
        SharedPrefixPolicy,
        HoldNPolicy,
        WaitKPolicy,
        StridedWaitKPolicy,
        FrameSchedulePolicy,
        OfflinePolicy,
    )
)


def make_policy(parameters: PolicyParameters) -> DecisionPolicy:  # noqa: PLR0911 - one a policy
    """Return a policy that remembers nothing yet."""
    match parameters:
        case EdattParameters():
            return EdattPolicy(parameters)
        case AlignAttParameters():
            return AlignAttPolicy(parameters)
        case LocalAgreementParameters():
            return LocalAgreementPolicy(parameters)
        case SharedPrefixParameters():
            return SharedPrefixPolicy(parameters)
        case HoldNParameters():
            return HoldNPolicy(parameters)
        case WaitKParameters():
            return WaitKPolicy(parameters)
        case StridedWaitKParameters():
            return StridedWaitKPolicy(parameters)
        case FrameScheduleParameters():
            return FrameSchedulePolicy(parameters)
        case OfflineParameters():
            return OfflinePolicy(parameters)


def attention_choice(parameters: PolicyParameters) -> tuple[int | None, tuple[int, ...]]:
    """Return the decoder layer that the policy reads, and the heads whose mean it reads.

    Returns:
        The layer, from 1, or None where the policy reads no attention and any will do; the heads,
        from 1, empty for all.
    """
    if isinstance(parameters, (EdattParameters, AlignAttParameters)):
        return parameters.attention_layer, parameters.attention_heads
    return None, ()


def required_segment(parameters: PolicyParameters) -> tuple[int, int] | None:
    """Return (segment_ms, initial_wait_ms) where the policy dictates them, else None."""
    if isinstance(parameters, FrameScheduleParameters):
        return parameters.segment_ms, parameters.initial_wait_ms
    return None


def ends_early(parameters: PolicyParameters) -> bool:
    """Say whether the policy may commit an end of sentence before the end of the source."""
    if isinstance(parameters, (EdattParameters, AlignAttParameters)):
        return parameters.allow_early_end
    return isinstance(parameters, WaitKParameters) and parameters.end_while_reading == "commit"
