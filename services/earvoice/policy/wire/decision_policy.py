"""A stream's choice of policy: checked, with the model's defaults filled in, and sent back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.policy.decisions.align_att import AlignAttParameters
from earvoice.policy.decisions.edatt import EdattParameters
from earvoice.policy.decisions.factory import POLICY_NAMES, PolicyParameters
from earvoice.policy.decisions.frame_schedule import FrameScheduleParameters
from earvoice.policy.decisions.hold_n import HoldNParameters
from earvoice.policy.decisions.local_agreement import LocalAgreementParameters
from earvoice.policy.decisions.offline import OfflineParameters
from earvoice.policy.decisions.shared_prefix import SharedPrefixParameters
from earvoice.policy.decisions.strided_wait_k import StridedWaitKParameters
from earvoice.policy.decisions.wait_k import WaitKParameters
from earvoice.policy.wire.policy_field import (
    ChoiceField,
    FlagField,
    HeadsField,
    Model,
    NumberField,
    PolicyField,
)
from earvoice.runtime.errors import InvalidFieldError, UnimplementedFieldError


@dataclass(frozen=True)
class _PolicyForm:
    """How a policy is written.

    Attributes:
        parameters: made from the fields.
        fields: by their names, which are the same on the wire and in the parameters.
    """

    parameters: type[PolicyParameters]
    fields: Mapping[str, PolicyField]


_LAYER = NumberField(1, "decoder_layer_count", "default_attention_layer")

_FORMS = {
    "edatt": _PolicyForm(
        EdattParameters,
        {
            "alpha": NumberField(0.0, 1.0, "default_alpha"),
            "lambda_states": NumberField(1, 64, "default_lambda_states"),
            "attention_layer": _LAYER,
            "attention_heads": HeadsField(),
            "normalization": ChoiceField({0: "l2", 1: "l2", 2: "l1"}),
            "allow_early_end": FlagField(),
        },
    ),
    "align_att": _PolicyForm(
        AlignAttParameters,
        {
            "frames": NumberField(1, 256, "default_frames"),
            "attention_layer": _LAYER,
            "attention_heads": HeadsField(),
            "allow_early_end": FlagField(),
        },
    ),
    "local_agreement": _PolicyForm(LocalAgreementParameters, {"n": NumberField(2, 64, 2)}),
    "shared_prefix": _PolicyForm(SharedPrefixParameters, {"n": NumberField(1, 8, 1)}),
    "hold_n": _PolicyForm(HoldNParameters, {"n": NumberField(0, 64, 6)}),
    "wait_k": _PolicyForm(
        WaitKParameters,
        {
            "k": NumberField(1, 64, 3),
            "detection": ChoiceField({0: "fixed", 1: "fixed", 2: "adaptive"}),
            "inclusive": FlagField(),
            "count_partial_word": FlagField(default=True),
            "end_while_reading": ChoiceField({0: "stop", 1: "stop", 2: "avoid", 3: "commit"}),
        },
    ),
    "strided_wait_k": _PolicyForm(
        StridedWaitKParameters,
        {
            "k": NumberField(1, 64, 3),
            "stride_ms": NumberField(40, 4000),
            "stride_words": NumberField(1, 16),
            "catch_up": NumberField(-1.0, 4.0, 0.0),
        },
    ),
    "frame_schedule": _PolicyForm(
        FrameScheduleParameters,
        {
            "wait_frames": NumberField(1, 2000, required=True),
            "stride_frames": NumberField(1, 500, required=True),
            "tokens": NumberField(1, 16, required=True),
            "max_length_ratio": NumberField(0.01, 10.0, 1.0),
        },
    ),
    "offline": _PolicyForm(OfflineParameters, {}),
}


def policy_parameters(message: policy_pb.DecisionPolicy, model: Model) -> PolicyParameters:
    """Return the policy asked for; the model's own when none is.

    Raises:
        InvalidFieldError: a parameter is out of range, or contradicts another.
        UnimplementedFieldError: the model's own policy is of a later version.
    """
    chosen = message.WhichOneof("policy") or model.default_policy
    if chosen not in _FORMS:
        raise UnimplementedFieldError(
            f"policy.{chosen}", f"is not implemented; there are {', '.join(POLICY_NAMES)}"
        )
    form, part = _FORMS[chosen], getattr(message, chosen)
    values: dict[str, Any] = {
        name: field.read(part, name, f"policy.{chosen}.{name}", model)
        for name, field in form.fields.items()
    }
    if chosen == "strided_wait_k":
        _choose_stride(values)
    elif chosen == "frame_schedule":
        _check_schedule(values)
    return form.parameters(**values)


def policy_message(parameters: PolicyParameters) -> policy_pb.DecisionPolicy:
    """Return the policy as the client is told of it, every field set."""
    message = policy_pb.DecisionPolicy()
    name, form = next(
        (name, form) for name, form in _FORMS.items() if form.parameters is type(parameters)
    )
    part = getattr(message, name)
    part.SetInParent()
    for parameter, field in form.fields.items():
        field.write(part, parameter, getattr(parameters, parameter))
    return message


def _choose_stride(values: dict[str, Any]) -> None:
    if values["stride_words"] is None:
        values["stride_ms"] = values["stride_ms"] or 300
    elif values["stride_ms"] is not None:
        raise InvalidFieldError(
            "policy.strided_wait_k.stride_words", values["stride_words"], "unset beside stride_ms"
        )


def _check_schedule(values: dict[str, Any]) -> None:
    if values["wait_frames"] < values["stride_frames"]:
        raise InvalidFieldError(
            "policy.frame_schedule.wait_frames",
            values["wait_frames"],
            f"{values['stride_frames']} (stride_frames) or more",
        )
