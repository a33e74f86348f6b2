"""Every policy's parameters on the wire: defaults, checks, and back."""

from __future__ import annotations

from typing import get_args

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import decision_policy_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.decisions.align_att import AlignAttParameters
from earvoice.policy.decisions.edatt import EdattParameters
from earvoice.policy.decisions.factory import POLICY_NAMES, attention_choice, make_policy
from earvoice.policy.decisions.frame_schedule import FrameScheduleParameters
from earvoice.policy.decisions.hold_n import HoldNParameters
from earvoice.policy.decisions.local_agreement import LocalAgreementParameters
from earvoice.policy.decisions.offline import OfflineParameters
from earvoice.policy.decisions.shared_prefix import SharedPrefixParameters
from earvoice.policy.decisions.strided_wait_k import StridedWaitKParameters
from earvoice.policy.decisions.wait_k import Detection, EndWhileReading, WaitKParameters
from earvoice.policy.wire.decision_policy import policy_message, policy_parameters
from earvoice.runtime.errors import InvalidFieldError, UnimplementedFieldError

MODEL = types_pb2.ModelDescription(
    decoder_layer_count=6,
    default_policy="align_att",
    default_alpha=0.25,
    default_lambda_states=3,
    default_attention_layer=4,
    default_frames=5,
)
HEADS = st.lists(st.integers(1, 16), unique=True, max_size=4).map(tuple)
PARAMETERS = st.one_of(
    st.builds(
        EdattParameters,
        st.floats(0, 1),
        st.integers(1, 64),
        st.integers(1, 6),
        st.sampled_from(["l1", "l2"]),
        st.booleans(),
        HEADS,
    ),
    st.builds(AlignAttParameters, st.integers(1, 256), st.integers(1, 6), HEADS, st.booleans()),
    st.builds(LocalAgreementParameters, st.integers(2, 64)),
    st.builds(SharedPrefixParameters, st.integers(1, 8)),
    st.builds(HoldNParameters, st.integers(0, 64)),
    st.builds(
        WaitKParameters,
        st.integers(1, 64),
        st.sampled_from(get_args(Detection)),
        st.booleans(),
        st.booleans(),
        st.sampled_from(get_args(EndWhileReading)),
    ),
    st.builds(
        StridedWaitKParameters,
        st.integers(1, 64),
        st.integers(40, 4000),
        st.none(),
        st.floats(-1, 4),
    ),
    st.builds(
        StridedWaitKParameters, st.integers(1, 64), st.none(), st.integers(1, 16), st.floats(-1, 4)
    ),
    st.builds(
        FrameScheduleParameters,
        st.integers(500, 2000),
        st.integers(1, 500),
        st.integers(1, 16),
        st.floats(0.01, 10),
    ),
    st.just(OfflineParameters()),
)


def asked(text: str):
    """The parameters that a message, written as text, stands for."""
    return policy_parameters(text_format.Parse(text, pb.DecisionPolicy()), MODEL)


@given(PARAMETERS)
def test_what_a_client_is_told_asks_for_the_same(parameters):
    """Every parameter of every policy is echoed."""
    assert policy_parameters(policy_message(parameters), MODEL) == parameters


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", AlignAttParameters(5, 4)),
        ("edatt {}", EdattParameters(0.25, 3, 4)),
        ("align_att { frames: 2 }", AlignAttParameters(2, 4)),
        ("local_agreement {}", LocalAgreementParameters(2)),
        ("shared_prefix {}", SharedPrefixParameters(1)),
        ("hold_n {}", HoldNParameters(6)),
        ("hold_n { n: 0 }", HoldNParameters(0)),
        ("wait_k {}", WaitKParameters()),
        ("strided_wait_k {}", StridedWaitKParameters(3, 300, None, 0.0)),
        ("strided_wait_k { stride_words: 2 }", StridedWaitKParameters(3, None, 2, 0.0)),
        (
            "frame_schedule { wait_frames: 100 stride_frames: 20 tokens: 2 }",
            FrameScheduleParameters(100, 20, 2, 1.0),
        ),
        ("offline {}", OfflineParameters()),
    ],
)
def test_what_is_left_out_takes_its_default(text, parameters):
    """The model's own policy and values where it has them."""
    assert asked(text) == parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("edatt { alpha: 1.5 }", r"policy.edatt.alpha = '?1.5'?.*0.0 to 1.0"),
        ("edatt { alpha: nan }", "policy.edatt.alpha"),
        ("edatt { lambda_states: 0 }", "policy.edatt.lambda_states"),
        ("edatt { attention_layer: 7 }", "policy.edatt.attention_layer = .*1 to 6"),
        ("edatt { attention_heads: [0] }", "policy.edatt.attention_heads = .*from 1"),
        ("edatt { normalization: 9 }", "policy.edatt.normalization"),
        ("align_att { frames: 0 }", "policy.align_att.frames = .*1 to 256"),
        ("align_att { attention_heads: [1, 1] }", "policy.align_att.attention_heads.*each once"),
        ("local_agreement { n: 1 }", "policy.local_agreement.n = .*2 to 64"),
        ("shared_prefix { n: 9 }", "policy.shared_prefix.n = .*1 to 8"),
        ("hold_n { n: -1 }", "policy.hold_n.n"),
        ("wait_k { k: 0 }", "policy.wait_k.k"),
        ("wait_k { detection: 3 }", "policy.wait_k.detection"),
        ("strided_wait_k { k: -1 }", "policy.strided_wait_k.k"),
        ("strided_wait_k { stride_ms: 10 }", "policy.strided_wait_k.stride_ms = .*40 to 4000"),
        ("strided_wait_k { stride_ms: 300 stride_words: 1 }", "stride_words = .*beside stride_ms"),
        ("strided_wait_k { catch_up: inf }", "policy.strided_wait_k.catch_up"),
        ("frame_schedule {}", "policy.frame_schedule.wait_frames = .*1 to 2000"),
        ("frame_schedule { wait_frames: 9 stride_frames: 1 }", "frame_schedule.tokens = "),
        (
            "frame_schedule { wait_frames: 9 stride_frames: 10 tokens: 1 }",
            r"wait_frames = .*10 \(stride_frames\) or more",
        ),
        (
            "frame_schedule { wait_frames: 9 stride_frames: 9 tokens: 1 max_length_ratio: 0 }",
            "policy.frame_schedule.max_length_ratio",
        ),
    ],
)
def test_what_is_not_allowed_is_told(text, message):
    """The message names the field, its value, and what is allowed."""
    with pytest.raises(InvalidFieldError, match=message):
        asked(text)


def test_a_model_of_a_later_version_is_told():
    """Its own policy is not known here."""
    with pytest.raises(UnimplementedFieldError, match=r"policy\.telepathy"):
        policy_parameters(
            pb.DecisionPolicy(), types_pb2.ModelDescription(default_policy="telepathy")
        )


def test_every_policy_of_the_wire_is_there():
    """The list that clients are shown is the wire's."""
    assert set(POLICY_NAMES) == set(pb.DecisionPolicy.DESCRIPTOR.fields_by_name)


@given(PARAMETERS)
def test_only_policies_that_read_attention_choose_a_layer(parameters):
    """Their own; for the others any will do."""
    layer, heads = attention_choice(parameters)
    reads = make_policy(parameters).name in {"edatt", "align_att"}
    assert (layer is not None) == reads
    assert reads or heads == ()


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("edatt {}", (2, 3)),
        ("edatt { attention_layer: 4 }", (2, 3)),
        ("edatt { attention_layer: 5 }", ()),
        ("align_att { attention_heads: [1, 4] }", (1, 4)),
    ],
)
def test_calibrated_heads_are_of_the_models_own_layer(text: str, heads: tuple[int, ...]):
    """Heads of one layer mean nothing in another."""
    model = types_pb2.ModelDescription()
    model.CopyFrom(MODEL)
    model.default_attention_heads.extend((2, 3))
    message = text_format.Parse(text, pb.DecisionPolicy())
    assert attention_choice(policy_parameters(message, model))[1] == heads
