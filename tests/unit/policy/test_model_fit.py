"""What a model cannot do is refused by name, and nothing else is."""

from __future__ import annotations

import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.wire.config import stream_options, updated_options
from earvoice.runtime.errors import InvalidFieldError
from tests.unit.policy.test_config import MODEL

ADAPTIVE = policy_pb.DecisionPolicy(wait_k={"detection": policy_pb.WORD_DETECTION_ADAPTIVE})


def _model(**facts: bool) -> types_pb2.ModelDescription:
    model = types_pb2.ModelDescription(lacks_ctc=True, greedy_only=True)
    model.MergeFrom(MODEL)
    for name, value in facts.items():
        setattr(model, name, value)
    return model


def _config(**changes: object) -> pb.StreamingConfig:
    return pb.StreamingConfig(
        audio_encoding=types_pb2.AUDIO_ENCODING_LINEAR16, sample_rate_hertz=16_000, **changes
    )


REFUSED = {
    "policy.wait_k.detection": {"policy": ADAPTIVE},
    "policy.strided_wait_k.stride_words": {
        "policy": policy_pb.DecisionPolicy(strided_wait_k={"stride_words": 1})
    },
    "enable_source_transcript": {"enable_source_transcript": True},
    "beam_size": {"policy": policy_pb.DecisionPolicy(edatt={}), "beam_size": 2},
    "policy.shared_prefix": {"policy": policy_pb.DecisionPolicy(shared_prefix={})},
}


@pytest.mark.parametrize("field", REFUSED)
def test_refusals_name_the_field_and_the_model(field: str) -> None:
    """What reads CTC labels, and beams where there are none; a model that can does."""
    with pytest.raises(InvalidFieldError, match=r"model 'scripted'") as refusal:
        stream_options(_config(**REFUSED[field]), _model())
    assert field in str(refusal.value)
    assert stream_options(_config(**REFUSED[field]), MODEL)


@pytest.mark.parametrize(
    "policy",
    [
        {"edatt": {}},
        {"align_att": {"frames": 4}},
        {"local_agreement": {}},
        {"hold_n": {}},
        {"wait_k": {}},
        {"offline": {}},
    ],
    ids=lambda policy: next(iter(policy)),
)
def test_what_reads_no_labels_is_taken(policy: dict[str, dict[str, int]]) -> None:
    """Attention, agreement and the clock need no CTC head."""
    assert stream_options(_config(policy=policy_pb.DecisionPolicy(**policy)), _model())


def test_updates_are_checked_as_well() -> None:
    """A stream cannot be changed into what its model cannot do."""
    options = stream_options(_config(policy=policy_pb.DecisionPolicy(wait_k={})), _model())
    with pytest.raises(InvalidFieldError, match=r"policy\.wait_k\.detection"):
        updated_options(options, pb.StreamingUpdate(policy=ADAPTIVE), _model())
