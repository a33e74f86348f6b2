"""A stream's choice of policy: checked, with the model's defaults filled in, and sent back."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.decisions.edatt import EdattParameters, Normalization
from earvoice.policy.decisions.factory import POLICY_NAMES, PolicyParameters
from earvoice.policy.decisions.hold_n import HoldNParameters
from earvoice.policy.decisions.local_agreement import LocalAgreementParameters
from earvoice.policy.decisions.wait_k import Detection, EndWhileReading, WaitKParameters
from earvoice.policy.wire.check import check_range
from earvoice.runtime.errors import InvalidFieldError, UnimplementedFieldError

Model = types_pb2.ModelDescription
Number = TypeVar("Number", int, float)
Name = TypeVar("Name")

_NORMALIZATIONS: dict[int, Normalization] = {0: "l2", 1: "l2", 2: "l1"}
_DETECTIONS: dict[int, Detection] = {0: "fixed", 1: "fixed", 2: "adaptive"}
_ENDS: dict[int, EndWhileReading] = {0: "stop", 1: "stop", 2: "avoid", 3: "commit"}


def policy_parameters(message: policy_pb.DecisionPolicy, model: Model) -> PolicyParameters:
    """Return the policy asked for; the model's own when none is.

    Raises:
        InvalidFieldError: a parameter is out of range.
        UnimplementedFieldError: the policy is reserved for a later version.
    """
    chosen = message.WhichOneof("policy") or model.default_policy
    match chosen:
        case "edatt":
            return _edatt(message.edatt, model)
        case "local_agreement":
            return LocalAgreementParameters(
                check_range(
                    "policy.local_agreement.n", _given(message.local_agreement, "n", 2), 2, 8
                )
            )
        case "wait_k":
            return _wait_k(message.wait_k)
        case "hold_n":
            return HoldNParameters(
                check_range("policy.hold_n.n", _given(message.hold_n, "n", 6), 0, 64)
            )
    raise UnimplementedFieldError(
        f"policy.{chosen}", f"is not implemented; there are {', '.join(POLICY_NAMES)}"
    )


def attention_layer(parameters: PolicyParameters, model: Model) -> int:
    """Return the decoder layer to read: EDAtt's own choice, else the model's."""
    if isinstance(parameters, EdattParameters):
        return parameters.attention_layer
    return model.default_attention_layer


def policy_message(parameters: PolicyParameters) -> policy_pb.DecisionPolicy:
    """Return the policy as the client is told of it, every field set."""
    match parameters:
        case EdattParameters():
            return policy_pb.DecisionPolicy(
                edatt=policy_pb.EdattPolicy(
                    alpha=parameters.alpha,
                    lambda_states=parameters.lambda_states,
                    attention_layer=parameters.attention_layer,
                    normalization=_number_of(_NORMALIZATIONS, parameters.normalization),
                    allow_early_end=parameters.allow_early_end,
                )
            )
        case LocalAgreementParameters():
            return policy_pb.DecisionPolicy(
                local_agreement=policy_pb.LocalAgreementPolicy(n=parameters.n)
            )
        case HoldNParameters():
            return policy_pb.DecisionPolicy(hold_n=policy_pb.HoldNPolicy(n=parameters.n))
        case WaitKParameters():
            return policy_pb.DecisionPolicy(
                wait_k=policy_pb.WaitKPolicy(
                    k=parameters.k,
                    detection=_number_of(_DETECTIONS, parameters.detection),
                    inclusive=parameters.inclusive,
                    count_partial_word=parameters.count_partial_word,
                    end_while_reading=_number_of(_ENDS, parameters.end_while_reading),
                )
            )


def _edatt(message: policy_pb.EdattPolicy, model: Model) -> EdattParameters:
    if message.attention_heads:
        raise UnimplementedFieldError("policy.edatt.attention_heads")
    layer = _given(message, "attention_layer", model.default_attention_layer)
    states = _given(message, "lambda_states", model.default_lambda_states)
    return EdattParameters(
        alpha=check_range(
            "policy.edatt.alpha", _given(message, "alpha", model.default_alpha), 0.0, 1.0
        ),
        lambda_states=check_range("policy.edatt.lambda_states", states, 1, 64),
        attention_layer=check_range(
            "policy.edatt.attention_layer", layer, 1, model.decoder_layer_count
        ),
        normalization=_enum("policy.edatt.normalization", message.normalization, _NORMALIZATIONS),
        allow_early_end=message.allow_early_end,
    )


def _wait_k(message: policy_pb.WaitKPolicy) -> WaitKParameters:
    partial = message.count_partial_word if message.HasField("count_partial_word") else True
    return WaitKParameters(
        k=check_range("policy.wait_k.k", _given(message, "k", 3), 1, 64),
        detection=_enum("policy.wait_k.detection", message.detection, _DETECTIONS),
        inclusive=message.inclusive,
        count_partial_word=partial,
        end_while_reading=_enum(
            "policy.wait_k.end_while_reading", message.end_while_reading, _ENDS
        ),
    )


def _given(message: object, field: str, default: Number) -> Number:
    """Return an optional field's value, or the default when it is not set."""
    if message.HasField(field):  # type: ignore[attr-defined]
        return cast("Number", getattr(message, field))
    return default


def _enum(field: str, number: int, names: dict[int, Name]) -> Name:
    if number not in names:
        raise InvalidFieldError(field, number, f"one of {sorted(names)}")
    return names[number]


def _number_of(names: dict[int, Name], name: Name) -> Any:
    """Return the named value's number, never the one for "not set"."""
    return next(number for number, known in names.items() if number and known == name)
