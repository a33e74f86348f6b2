"""Decision policies as a line of text: ``edatt:alpha=0.2,lambda_states=2``."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from earvoice.client.policy import choose_policy

if TYPE_CHECKING:
    from earvoice.client.policy import DecisionPolicy

_FLAGS = {"true": True, "false": False}


def parse_policy(text: str) -> DecisionPolicy:
    """Return the policy that a text stands for.

    Args:
        text: a name, or ``NAME:PARAMETER=VALUE,PARAMETER=VALUE``; hyphens may stand for
            underscores, flags are ``true`` or ``false``, attention heads are joined by ``+``.

    Raises:
        ValueError: no such policy or parameter, or no value of its kind.
    """
    name, _, assignments = text.partition(":")
    return choose_policy(name, **parse_parameters(name, assignments))


def parse_parameters(policy_name: str, assignments: str) -> dict[str, object]:
    """Return parameters by name from ``PARAMETER=VALUE,PARAMETER=VALUE``.

    Raises:
        ValueError: no such policy or parameter, or no value of its kind.
    """
    policy = type(choose_policy(policy_name))
    kinds = get_type_hints(policy)
    values: dict[str, object] = {}
    for assignment in filter(None, assignments.split(",")):
        key, equals, value = assignment.partition("=")
        parameter = key.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"{assignment!r} is not PARAMETER=VALUE")
        if parameter in values:
            raise ValueError(f"{parameter} is given twice")
        if parameter not in {field.name for field in fields(policy)}:
            choose_policy(policy_name, **{parameter: value})
        values[parameter] = _parse_value(parameter, value.strip(), kinds[parameter])
    return values


def format_policy(policy: DecisionPolicy) -> str:
    """Return the text that ``parse_policy`` reads back; parameters that are unset are left out."""
    given = [
        f"{field.name}={_format_value(value)}"
        for field in fields(policy)
        if (value := getattr(policy, field.name)) not in (None, ())
    ]
    return f"{policy.NAME}:{','.join(given)}" if given else policy.NAME


def _parse_value(parameter: str, text: str, kind: Any) -> object:
    kinds = [part for part in get_args(kind) if part is not NoneType] or [kind]
    kind = kind if get_origin(kind) is tuple else kinds[0]
    if get_origin(kind) is Literal:
        return _choose(parameter, text, {name: name for name in get_args(kind)})
    if kind is bool:
        return _choose(parameter, text, _FLAGS)
    try:
        if get_origin(kind) is tuple:
            return tuple(int(part) for part in text.split("+"))
        return kind(text)
    except ValueError as error:
        what = {int: "a whole number", float: "a number"}.get(kind, "whole numbers joined by +")
        raise ValueError(f"{parameter} = {text!r} is not {what}") from error


def _choose(parameter: str, text: str, choices: dict[str, Any]) -> object:
    if text not in choices:
        raise ValueError(f"{parameter} = {text!r} is not allowed; allowed: {', '.join(choices)}")
    return choices[text]


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value)
