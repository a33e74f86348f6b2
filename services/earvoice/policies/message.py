"""Policies on the wire: our own have a message each, all others share one that names them."""

from __future__ import annotations

from typing import Any

from earvoice.api.v1 import decision_policy_pb2 as pb
from earvoice.policies.base import DecisionPolicy
from earvoice.policies.registry import AnyPolicy, NamedPolicy, Policies, format_policy
from earvoice.runtime.parameter import (
    Parameter,
    ParameterError,
    parameters_of,
    unknown_parameter,
)

_NAMED = "named"


def write_policy(policy: AnyPolicy) -> pb.DecisionPolicy:
    """Return a policy's message; parameters that are None stay unset."""
    message = pb.DecisionPolicy()
    given = {name: value for name, value in policy.to_dict().items() if value is not None}
    has_message = policy.name in message.DESCRIPTOR.fields_by_name
    if has_message and not isinstance(policy, NamedPolicy):
        part = getattr(message, policy.name)
        part.SetInParent()
        for name, value in given.items():
            _set_field(part, name, value)
    else:
        message.named.name = policy.name
        for name, value in given.items():
            _set_value(message.named.parameters[name], value)
    return message


def read_policy(message: pb.DecisionPolicy, policies: Policies) -> DecisionPolicy | None:
    """Return the policy that a message asks for; None where it asks for none.

    Raises:
        ParameterError: no such policy or parameter, or a value that is not allowed. Fields are
            named as ``policy.NAME.PARAMETER``.
    """
    chosen = message.WhichOneof("policy")
    if chosen is None:
        return None
    told = _as_told(message, policies)
    if told.name not in policies:
        field = "policy.named.name" if chosen == _NAMED else "policy"
        raise ParameterError(field, told.name, ", ".join(policies))
    known = parameters_of(policies[told.name])
    for parameter, value in told.parameters.items():
        if parameter not in known:
            raise unknown_parameter(f"policy.{told.name}.{parameter}", value, known)
    return policies[told.name].from_dict(told.parameters, f"policy.{told.name}.")


def read_any_policy(message: pb.DecisionPolicy, policies: Policies) -> AnyPolicy | None:
    """Return the policy of a message, though it may not be among ``policies``."""
    if message.WhichOneof("policy") == _NAMED and message.named.name not in policies:
        return _as_told(message, policies)
    return read_policy(message, policies)


def told_policy(message: pb.DecisionPolicy, policies: Policies) -> AnyPolicy | None:
    """Return the policy that a server reports; unchecked where its values are not allowed here.

    A newer server may allow them.
    """
    try:
        return read_any_policy(message, policies)
    except ParameterError:
        return _as_told(message, policies)


def policy_text(message: pb.DecisionPolicy, policies: Policies) -> str:
    """Return `told_policy` as text; empty where there is none."""
    policy = told_policy(message, policies)
    return format_policy(policy) if policy else ""


def _as_told(message: pb.DecisionPolicy, policies: Policies) -> NamedPolicy:
    chosen = message.WhichOneof("policy") or ""
    part = getattr(message, chosen)
    if chosen == _NAMED:
        given = {key: _value_of(value) for key, value in part.parameters.items()}
        return NamedPolicy(part.name, given)
    known = parameters_of(policies[chosen]).values() if chosen in policies else ()
    set_here = [parameter for parameter in known if _is_set(part, parameter.name)]
    return NamedPolicy(chosen, {each.name: _field_of(part, each) for each in set_here})


def _is_set(part: Any, name: str) -> bool:
    """Say whether a field was set; without presence, whether it is anything but zero."""
    field = part.DESCRIPTOR.fields_by_name[name]
    return bool(part.HasField(name) if field.has_presence else getattr(part, name))


def _field_of(part: Any, parameter: Parameter) -> Any:
    value = getattr(part, parameter.name)
    if parameter.is_list:
        return tuple(value)
    if not parameter.choices:
        return value
    names = {number: choice for choice, number in _numbers(part, parameter.name).items()}
    # A number that has no name is passed on as it is.
    return names.get(value, value)


def _set_field(part: Any, name: str, value: Any) -> None:
    if isinstance(value, list | tuple):
        getattr(part, name).extend(value)
    elif part.DESCRIPTOR.fields_by_name[name].enum_type is not None:
        setattr(part, name, _numbers(part, name)[value])
    else:
        setattr(part, name, value)


def _numbers(part: Any, name: str) -> dict[str, int]:
    """Return an enum's numbers by their choices; ``WORD_DETECTION_FIXED`` is ``fixed``."""
    numbers = part.DESCRIPTOR.fields_by_name[name].enum_type.values_by_name
    unset = next(key for key, value in numbers.items() if value.number == 0)
    prefix = unset.removesuffix("UNSPECIFIED")
    return {
        key.removeprefix(prefix).lower(): value.number
        for key, value in numbers.items()
        if value.number
    }


def _set_value(message: pb.ParameterValue, value: Any) -> None:
    match value:
        case bool():
            message.flag = value
        case int():
            message.integer = value
        case float():
            message.number = value
        case str():
            message.text = value
        case _:
            message.list.SetInParent()
            for item in value:
                _set_value(message.list.values.add(), item)


def _value_of(message: pb.ParameterValue) -> Any:
    kind = message.WhichOneof("value")
    if kind == "list":
        return tuple(_value_of(item) for item in message.list.values)
    return getattr(message, kind) if kind else None
