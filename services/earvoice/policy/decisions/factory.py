"""From a policy's parameters to a fresh policy, once per utterance."""

from __future__ import annotations

from earvoice.policy.decisions.base import DecisionPolicy
from earvoice.policy.decisions.edatt import EdattParameters, EdattPolicy
from earvoice.policy.decisions.hold_n import HoldNParameters, HoldNPolicy
from earvoice.policy.decisions.local_agreement import (
    LocalAgreementParameters,
    LocalAgreementPolicy,
)
from earvoice.policy.decisions.wait_k import WaitKParameters, WaitKPolicy

PolicyParameters = EdattParameters | HoldNParameters | LocalAgreementParameters | WaitKParameters

POLICY_NAMES = tuple(
    policy.name for policy in (EdattPolicy, LocalAgreementPolicy, WaitKPolicy, HoldNPolicy)
)


def make_policy(parameters: PolicyParameters) -> DecisionPolicy:
    """Return a policy that remembers nothing yet."""
    match parameters:
        case EdattParameters():
            return EdattPolicy(parameters)
        case LocalAgreementParameters():
            return LocalAgreementPolicy(parameters)
        case WaitKParameters():
            return WaitKPolicy(parameters)
        case HoldNParameters():
            return HoldNPolicy(parameters)
