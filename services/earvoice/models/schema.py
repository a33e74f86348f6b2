"""Frozen dataclasses that check themselves: every field says its type and what it allows."""

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from earvoice.models.errors import ModelConfigError


def bounded(
    default: float | None = dataclasses.MISSING,  # type: ignore[assignment]
    *,
    minimum: float,
    maximum: float,
) -> Any:
    """A numeric field whose value must lie in [minimum, maximum]."""
    return dataclasses.field(default=default, metadata={"minimum": minimum, "maximum": maximum})


@dataclasses.dataclass(frozen=True)
class Record:
    """Base of the configuration dataclasses: strict types, strict ranges, strict dictionaries."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ModelConfigError: a value is of the wrong type or not allowed.
        """
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check(f"{type(self).__name__}.{field.name}", getattr(self, field.name), hints, field)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain dictionaries, lists and scalars, ready for JSON."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build the record from what `to_dict` gave.

        Raises:
            ModelConfigError: a field is unknown, missing, of the wrong type or out of range.
        """
        if not isinstance(values, Mapping):
            message = f"{cls.__name__} is {values!r}; an object with named fields is expected"
            raise ModelConfigError(message)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(fields))
        if unknown:
            message = f"{cls.__name__}.{unknown[0]} is not a field; allowed are {sorted(fields)}"
            raise ModelConfigError(message)
        missing = [
            name
            for name, field in fields.items()
            if name not in values
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ]
        if missing:
            message = f"{cls.__name__}.{missing[0]} is missing; it has no default"
            raise ModelConfigError(message)
        hints = get_type_hints(cls)
        return cls(**{name: _built(value, hints[name]) for name, value in values.items()})


def _plain(value: object) -> object:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _built(value: Any, hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        if value is None:
            return None
        hint = next(option for option in get_args(hint) if option is not NoneType)
    if isinstance(hint, type) and issubclass(hint, Record) and not isinstance(value, Record):
        return hint.from_dict(value)
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_built(item, get_args(hint)[0]) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _check(name: str, value: Any, hints: dict[str, Any], field: dataclasses.Field[Any]) -> None:
    hint = hints[field.name]
    if not _matches(value, hint):
        message = f"{name} is {value!r}; allowed: {_allowed(hint)}"
        raise ModelConfigError(message)
    if "minimum" in field.metadata and value is not None:
        minimum, maximum = field.metadata["minimum"], field.metadata["maximum"]
        if not minimum <= value <= maximum:
            message = f"{name} is {value!r}; allowed: {minimum} to {maximum}"
            raise ModelConfigError(message)


def _matches(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_matches(value, option) for option in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_matches(v, get_args(hint)[0]) for v in value)
    if hint in (int, float):
        return isinstance(value, hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def _allowed(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(repr(choice) for choice in get_args(hint))
    return getattr(hint, "__name__", None) or str(hint)
