"""Decision policies: pure objects, evidence in, decision out.

A policy of one's own is a subclass of `DecisionPolicy`; CONTRIBUTING shows one.
"""

from earvoice.policies.align_att import AlignAtt
from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policies.edatt import Edatt
from earvoice.policies.frame_schedule import FrameSchedule
from earvoice.policies.hold_n import HoldN
from earvoice.policies.local_agreement import LocalAgreement
from earvoice.policies.offline import Offline
from earvoice.policies.registry import (
    POLICIES,
    NamedPolicy,
    PolicyLoadError,
    choose_policy,
    format_policy,
    parse_policy,
)
from earvoice.policies.shared_prefix import SharedPrefix
from earvoice.policies.strided_wait_k import StridedWaitK
from earvoice.policies.transducer import Transducer
from earvoice.policies.wait_k import WaitK, WordDetection
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
