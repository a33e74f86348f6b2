"""Decision policies: pure objects, evidence in, decision out.

To write a policy, subclass `DecisionPolicy`; CONTRIBUTING shows an example.
"""

from earvoice.policies.agreement import LocalAgreement, SharedPrefix
from earvoice.policies.attention import AlignAtt, Edatt
from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policies.frame_schedule import FrameSchedule
from earvoice.policies.plain import HoldN, Offline, Transducer
from earvoice.policies.registry import (
    POLICIES,
    NamedPolicy,
    PolicyLoadError,
    choose_policy,
    format_policy,
    parse_policy,
)
from earvoice.policies.wait_k import StridedWaitK, WaitK, WordDetection
from earvoice.runtime.parameter import ParameterError, parameter

__all__ = [
    "POLICIES",
    "AlignAtt",
    "Decision",
    "DecisionPolicy",
    "Edatt",
    "FrameSchedule",
    "Heard",
    "HoldN",
    "Hypothesis",
    "LocalAgreement",
    "NamedPolicy",
    "Offline",
    "ParameterError",
    "PolicyLoadError",
    "SharedPrefix",
    "StridedWaitK",
    "Token",
    "Transducer",
    "WaitK",
    "WordDetection",
    "choose_policy",
    "format_policy",
    "parameter",
    "parse_policy",
]
