"""The kinds of fields that policies have on the wire: read with their checks, and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from earvoice.api.v1 import types_pb2
from earvoice.policy.wire.check import check_range
from earvoice.runtime.errors import InvalidFieldError

Model = types_pb2.ModelDescription
Value = int | float | bool | str | tuple[int, ...] | None

_LAYER = "attention_layer"


class PolicyField(Protocol):
    """One parameter of one policy.

    ``read`` returns its value, checked, with defaults filled in; ``path`` names it in errors.
    ``write`` sets it in a message.
    """

    def read(self, message: Message, name: str, path: str, model: Model) -> Value:
        """Return the value of the field ``name``.

        Raises:
            InvalidFieldError: it is not allowed.
        """

    def write(self, message: Message, name: str, value: Value) -> None:
        """Set the field ``name``."""


class _PlainField:
    def write(self, message: Message, name: str, value: Value) -> None:
        """Set the field; None leaves it unset."""
        if value is not None:
            setattr(message, name, value)


@dataclass(frozen=True)
class NumberField(_PlainField):
    """A number from ``lowest`` to ``highest``.

    Attributes:
        lowest: smallest allowed.
        highest: largest allowed, or the name of the model's value.
        default: value where the field is not set, or the name of the model's; None: stays None.
        required: whether it must be set.
    """

    lowest: float
    highest: float | str
    default: float | str | None = None
    required: bool = False

    def read(self, message: Message, name: str, path: str, model: Model) -> Value:
        """Return the number.

        Raises:
            InvalidFieldError: it is out of range, or missing although required.
        """
        value = getattr(message, name) if self.required or is_set(message, name) else self.default
        if value is None:
            return None
        if isinstance(value, str):
            value = getattr(model, value)
        highest = getattr(model, self.highest) if isinstance(self.highest, str) else self.highest
        return check_range(path, value, self.lowest, highest)


@dataclass(frozen=True)
class FlagField(_PlainField):
    """Yes or no.

    Attributes:
        default: value where the field is not set.
    """

    default: bool = False

    def read(self, message: Message, name: str, path: str, model: Model) -> Value:
        """Return the flag."""
        del path, model
        return bool(getattr(message, name)) if is_set(message, name) else self.default


@dataclass(frozen=True)
class ChoiceField:
    """One of a few names.

    Attributes:
        names: by their numbers; 0, not set, has the default's name.
    """

    names: Mapping[int, str]

    def read(self, message: Message, name: str, path: str, model: Model) -> Value:
        """Return the name.

        Raises:
            InvalidFieldError: no name has this number.
        """
        del model
        number = getattr(message, name)
        if number not in self.names:
            raise InvalidFieldError(path, number, f"one of {sorted(self.names)}")
        return self.names[number]

    def write(self, message: Message, name: str, value: Value) -> None:
        """Set the name's number, never the one for "not set"."""
        known = (number for number, known in self.names.items() if number and known == value)
        setattr(message, name, next(known))


@dataclass(frozen=True)
class HeadsField:
    """Attention heads, from 1, each once. How many there are is the decoder's knowledge.

    The model's own are of its own layer; of another, unset means all.
    """

    def read(self, message: Message, name: str, path: str, model: Model) -> Value:
        """Return the heads.

        Raises:
            InvalidFieldError: one is below 1, or named twice.
        """
        heads = tuple(getattr(message, name))
        layer = getattr(message, _LAYER) if is_set(message, _LAYER) else None
        own_layer = layer in (None, model.default_attention_layer)
        if not heads and own_layer:
            return tuple(model.default_attention_heads)
        if any(head < 1 for head in heads) or len(set(heads)) < len(heads):
            raise InvalidFieldError(path, list(heads), "heads from 1, each once")
        return heads

    def write(self, message: Message, name: str, value: Value) -> None:
        """Set the heads."""
        getattr(message, name).extend(value)


def is_set(message: Message, name: str) -> bool:
    """Say whether a field was set; for one without presence, to anything but zero."""
    if message.DESCRIPTOR.fields_by_name[name].has_presence:
        return message.HasField(name)
    return bool(getattr(message, name))
