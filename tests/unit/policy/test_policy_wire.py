"""Every policy's parameters on the wire: defaults, checks, and back."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import decision_policy_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.policies import (
    POLICIES,
    AlignAtt,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    StridedWaitK,
    WaitK,
)
from earvoice.policies.message import write_policy
from earvoice.policy.wire.config import resolved_policy
from earvoice.runtime.errors import InvalidFieldError, UnimplementedFieldError

MODEL = types_pb2.ModelDescription(
    decoder_layer_count=6,
    decoder_head_count=16,
    default_policy="align_att",
    default_alpha=0.25,
    default_lambda_states=3,
    default_attention_layer=4,
    default_frames=5,
)
HEADS = st.lists(st.integers(1, 16), unique=True, max_size=4).map(tuple)
PARAMETERS = st.one_of(
    st.builds(
        Edatt,
        st.floats(0, 1),
        st.integers(1, 64),
        st.integers(1, 6),
        st.sampled_from(["l1", "l2"]),
        st.booleans(),
        HEADS,
    ),
    st.builds(AlignAtt, st.integers(1, 256), st.integers(1, 6), HEADS, st.booleans()),
    st.builds(LocalAgreement, st.integers(2, 64)),
    st.builds(SharedPrefix, st.integers(1, 8)),
    st.builds(HoldN, st.integers(0, 64)),
    st.builds(
        WaitK,
        st.integers(1, 64),
        st.sampled_from(["fixed", "adaptive"]),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["stop", "avoid", "commit"]),
    ),
    st.builds(
        StridedWaitK,
        st.integers(1, 64),
        st.integers(40, 4000),
        st.none(),
        st.floats(-1, 4),
    ),
    st.builds(StridedWaitK, st.integers(1, 64), st.none(), st.integers(1, 16), st.floats(-1, 4)),
    st.builds(
        FrameSchedule,
        st.integers(500, 2000),
        st.integers(1, 500),
        st.integers(1, 16),
        st.floats(0.01, 10),
    ),
    st.just(Offline()),
)


def asked(text: str):
    return resolved_policy(text_format.Parse(text, pb.DecisionPolicy()), MODEL, POLICIES)


@given(PARAMETERS)
def test_what_a_client_is_told_asks_for_the_same(parameters):
    """Every parameter of every policy is echoed."""
    assert resolved_policy(write_policy(parameters), MODEL, POLICIES) == parameters


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", AlignAtt(5, 4)),
        ("edatt {}", Edatt(0.25, 3, 4)),
        ("align_att { frames: 2 }", AlignAtt(2, 4)),
        ("local_agreement {}", LocalAgreement(2)),
        ("shared_prefix {}", SharedPrefix(1)),
        ("hold_n {}", HoldN(6)),
        ("hold_n { n: 0 }", HoldN(0)),
        ("wait_k {}", WaitK()),
        ("strided_wait_k {}", StridedWaitK(3, 300, None, 0.0)),
        ("strided_wait_k { stride_words: 2 }", StridedWaitK(3, None, 2, 0.0)),
        (
            "frame_schedule { wait_frames: 100 stride_frames: 20 tokens: 2 }",
            FrameSchedule(100, 20, 2, 1.0),
        ),
        ("offline {}", Offline()),
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
        ("edatt { attention_heads: [3, 17] }", r"policy.edatt.attention_heads = .*17.*1 to 16"),
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
        ("frame_schedule {}", "policy.frame_schedule.wait_frames is missing.*1 to 2000"),
        ("frame_schedule { wait_frames: 9 stride_frames: 1 }", "frame_schedule.tokens is missing"),
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
        resolved_policy(
            pb.DecisionPolicy(),
            types_pb2.ModelDescription(default_policy="telepathy"),
            POLICIES,
        )


def test_a_language_may_have_a_policy_of_its_own():
    """It is taken where the stream names none; what it leaves open is the model's."""
    model = types_pb2.ModelDescription()
    model.CopyFrom(MODEL)
    model.default_policies["de"].hold_n.n = 3
    model.default_policies["es"].edatt.alpha = 0.7
    unset = pb.DecisionPolicy()
    assert resolved_policy(unset, model, POLICIES, "de") == HoldN(3)
    spanish = resolved_policy(unset, model, POLICIES, "es")
    assert spanish == Edatt(0.7).resolved(MODEL)
    assert resolved_policy(unset, model, POLICIES, "en").name == MODEL.default_policy
    assert resolved_policy(write_policy(Offline()), model, POLICIES, "de") == Offline()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('named { name: "telepathy" }', "policy.named.name = 'telepathy'"),
        ("edatt { attention_layer: 99 }", "attention_layer = 99"),
    ],
)
def test_a_client_is_not_blamed_for_the_policy_of_a_language(text: str, message: str):
    """It has asked for none: the model's cannot be served."""
    model = types_pb2.ModelDescription()
    model.CopyFrom(MODEL)
    model.default_policies["de"].CopyFrom(text_format.Parse(text, pb.DecisionPolicy()))
    with pytest.raises(UnimplementedFieldError, match=message):
        resolved_policy(pb.DecisionPolicy(), model, POLICIES, "de")


def test_every_policy_of_the_wire_is_there():
    """The list that clients are shown is the wire's."""
    assert {*POLICIES, "named"} - {"transducer"} == set(pb.DecisionPolicy.DESCRIPTOR.fields_by_name)


@given(PARAMETERS)
def test_only_policies_that_read_attention_choose_a_layer(parameters):
    """Their own; for the others any will do."""
    layer, heads = parameters.attention
    reads = parameters.name in {"edatt", "align_att"}
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
    assert resolved_policy(message, model, POLICIES).attention[1] == heads
