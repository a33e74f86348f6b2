"""Decision policies on the wire, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

from earvoice.api.v1 import decision_policy_pb2 as policies
from earvoice.client.policy import (
    POLICIES,
    DecisionPolicy,
    EndWhileReading,
    Normalization,
    WordDetection,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each choice's names here and its numbers on the wire.
_CHOICES: Mapping[str, Mapping[str, int]] = {
    "normalization": {
        name: policies.AttentionNormalization.Value(f"ATTENTION_NORMALIZATION_{name.upper()}")
        for name in get_args(Normalization)
    },
    "detection": {
        name: policies.WordDetection.Value(f"WORD_DETECTION_{name.upper()}")
        for name in get_args(WordDetection)
    },
    "end_while_reading": {
        name: policies.EndWhileReading.Value(f"END_WHILE_READING_{name.upper()}")
        for name in get_args(EndWhileReading)
    },
}


def write_policy(policy: DecisionPolicy) -> policies.DecisionPolicy:
    """Return a policy's message; parameters that are None stay unset."""
    message = policies.DecisionPolicy()
    chosen = getattr(message, policy.NAME)
    chosen.SetInParent()
    for field in fields(policy):
        value = getattr(policy, field.name)
        if isinstance(value, tuple):
            getattr(chosen, field.name).extend(value)
        elif value is not None:
            setattr(chosen, field.name, _CHOICES.get(field.name, {}).get(value, value))
    return message


def read_policy(message: policies.DecisionPolicy) -> DecisionPolicy | None:
    """Return the policy; None for one that this client has no class for."""
    name = message.WhichOneof("policy")
    if name not in POLICIES:
        return None
    known = {field.name for field in fields(POLICIES[name])}
    given = {
        field.name: _read_value(field.name, value)
        for field, value in getattr(message, name).ListFields()
        if field.name in known
    }
    return POLICIES[name](**given)


def _read_value(name: str, value: Any) -> Any:
    if name in _CHOICES:
        numbers = _CHOICES[name]
        return next((choice for choice, number in numbers.items() if number == value), None)
    # Scalars but for heads, the only list.
    return tuple(value) if name == "attention_heads" else value
