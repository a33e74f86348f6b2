"""Declared parameters: a frozen dataclass whose fields say range, unit, default and help.

    @dataclass(frozen=True)
    class HoldN(Declared):
        n: int = parameter(6, minimum=0, maximum=64, unit="tokens", help="tokens held back")

Code that reads such values (from a message, a line of text, a JSON object) or describes them (in
help texts, pages, property tests) derives from the declaration. Values that are not allowed are
refused in one wording that names the field, the value and what is allowed. Settings from the
environment use pydantic instead.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, cast, get_args, get_origin, get_type_hints

from earvoice.runtime.errors import shown

_FLAGS = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_LISTS = {int: "whole numbers", float: "numbers", str: "texts"}


class ParameterError(ValueError):
    """A value that its declaration does not allow.

    Args:
        problem: what is wrong; by default, that the value is not allowed.
    """

    def __init__(self, field: str, value: object, allowed: str, problem: str = "") -> None:
        super().__init__(
            f"{field} {problem or f'= {shown(value)} is not allowed'}; allowed: {allowed}"
        )
        self.field = field
        self.value = value
        self.allowed = allowed
        self.problem = problem

    def within(self, path: str) -> ParameterError:
        """Return the same error for a field nested in another."""
        return type(self)(f"{path}{self.field}", self.value, self.allowed, self.problem)


def parameter(
    default: Any = dataclasses.MISSING,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    unit: str = "",
    help: str = "",  # noqa: A002 - argparse's word for it
    unique: bool = False,
    **facts: object,
) -> Any:
    """Declare a field of a `Declared` dataclass.

    Args:
        default: without one the field must be given; None where something else fills it in.
        minimum: smallest number allowed; for a tuple, each of its numbers.
        maximum: the largest.
        unit: of the number, for people.
        help: what it is, in a few words, for help texts and pages.
        unique: whether each item of a tuple may occur only once.
        facts: anything else about it, for code that derives more from the declaration.
    """
    declared = {
        "minimum": minimum,
        "maximum": maximum,
        "unit": unit,
        "help": help,
        "unique": unique,
        "facts": facts,
    }
    return dataclasses.field(default=default, metadata=declared)


def same_parameter(declared: type[Any], name: str, default: Any) -> Any:
    """Declare a field that allows what a field of another class does."""
    fields = {field.name: field for field in dataclasses.fields(declared)}
    return dataclasses.field(default=default, metadata=fields[name].metadata)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What one field allows.

    Attributes:
        kind: ``bool``, ``int``, ``float``, ``str`` or a `Declared` class; of a tuple, its items'.
        choices: the texts allowed; empty for any.
        default: ``dataclasses.MISSING`` where it must be given.
    """

    name: str
    kind: type
    default: Any
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    help: str = ""
    unique: bool = False
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def range(self) -> str:
        """What is allowed, without its kind: ``1 to 64``, ``from 1``, ``fixed, adaptive``."""
        if self.choices:
            return ", ".join(self.choices)
        if self.minimum is None:
            return ""
        low = f"from {self.minimum}" if self.maximum is None else f"{self.minimum}"
        return low if self.maximum is None else f"{low} to {self.maximum}"

    @property
    def allowed(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        kind = (_LISTS if self.is_list else _KINDS).get(self.kind, "an object with named fields")
        words = kind if self.maximum is None or self.minimum is None else f"{kind} from"
        once = ", each once" if self.unique else ""
        return f"{words} {self.range}".rstrip() + once

    def check(self, value: Any) -> None:
        if value is None and self.is_optional:
            return
        items = value if self.is_list else (value,)
        fits = isinstance(items, tuple) and all(self._fits(item) for item in items)
        if not fits or (self.unique and len(set(items)) < len(items)):
            raise ParameterError(self.name, value, self.allowed)

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for; its range is not checked.

        Items of a tuple are joined by ``+``; flags are ``true`` or ``false``.
        """
        try:
            if self.is_list:
                return tuple(self._read(part) for part in filter(None, text.split("+")))
            return self._read(text)
        except (KeyError, ValueError) as error:
            joined = " joined by +" if self.is_list else ""
            raise ParameterError(self.name, text, self.allowed + joined) from error

    def _read(self, text: str) -> Any:
        if self.choices and text not in self.choices:
            raise ValueError(text)
        return _FLAGS[text] if self.kind is bool else self.kind(text)

    def _fits(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind in (int, float):
            kinds = (int,) if self.kind is int else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds):
                return False
            low = self.minimum is None or value >= self.minimum
            return low and (self.maximum is None or value <= self.maximum)
        return isinstance(value, self.kind)


class Declared:
    """Base of frozen dataclasses whose values are checked when they are made.

    Fields are texts, numbers, flags, ``Literal``, tuples of one of them, or `Declared` themselves.
    A class that has more to check overrides `check_together`; one with an
    error class of its own sets `error`.
    """

    error: ClassVar[type[ParameterError]] = ParameterError

    def __post_init__(self) -> None:
        try:
            for declared in parameters_of(self.__class__).values():
                declared.check(getattr(self, declared.name))
            self.check_together()
        except ParameterError as wrong:
            raise self.error(wrong.field, wrong.value, wrong.allowed, wrong.problem) from None

    def check_together(self) -> None:
        """Refuse values that contradict each other.

        Raises:
            ParameterError: naming one of them.
        """

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in parameters_of(self.__class__)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: str = "") -> Self:
        """Build the object that `to_dict` was called on.

        Args:
            path: prefix of the fields' names in errors, such as ``encoder.``.
        """
        if not isinstance(values, Mapping):
            raise cls.error(path.rstrip(".") or "it", values, "an object with named fields")
        known = parameters_of(cls)
        for name in values:
            if name not in known:
                raise unknown_parameter(f"{path}{name}", values[name], known, cls.error)
        for name, declared in known.items():
            if declared.default is dataclasses.MISSING and name not in values:
                raise cls.error(f"{path}{name}", None, declared.allowed, "is missing")
        built = {name: _built(known[name], value, path) for name, value in values.items()}
        try:
            return cls(**built)
        except ParameterError as wrong:
            raise wrong.within(path) from None


def _read_parameters(declared: type[Any]) -> Mapping[str, Parameter]:
    hints = get_type_hints(declared)
    return MappingProxyType(
        {
            field.name: _parameter_of(field, hints[field.name])
            for field in dataclasses.fields(declared)
            if field.init
        }
    )


_Reader = Callable[[type[Any]], Mapping[str, Parameter]]
parameters_of = cast("_Reader", cache(_read_parameters))
"""The parameters of a `Declared` class by name, in order: the fields that it is made with."""


def parse_assignments(known: Mapping[str, Parameter], text: str) -> dict[str, Any]:
    """Return parameters by name from ``KEY=VALUE,KEY=VALUE``.

    Args:
        known: the parameters by key; hyphens in the text may stand for underscores.
        text: see `Parameter.parse`.
    """
    values: dict[str, Any] = {}
    for assignment in filter(None, text.split(",")):
        key, equals, value = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ParameterError(assignment, "", "PARAMETER=VALUE", "is not an assignment")
        if key not in known:
            raise unknown_parameter(key, value, known)
        declared = dataclasses.replace(known[key], name=key)
        if known[key].name in values:
            raise ParameterError(key, value, "one value", "is given twice")
        values[known[key].name] = declared.parse(value.strip())
    return values


def alternatives(text: str) -> list[str]:
    """Return every combination of one value a parameter from ``PARAMETER=VALUE/VALUE,...``."""
    choices: list[list[str]] = []
    for assignment in filter(None, text.split(",")):
        key, equals, values = assignment.partition("=")
        if not equals:
            raise ParameterError(assignment, "", "PARAMETER=VALUE", "is not an assignment")
        choices.append([f"{key.strip()}={value.strip()}" for value in values.split("/")])
    return [",".join(chosen) for chosen in product(*choices)]


def format_value(value: object) -> str:
    """Return a value as `Parameter.parse` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def unknown_parameter(
    field: str,
    value: object,
    known: Iterable[str],
    error: type[ParameterError] = ParameterError,
) -> ParameterError:
    return error(field, value, ", ".join(known) or "none", "is not a parameter")


def _parameter_of(field: dataclasses.Field[Any], hint: Any) -> Parameter:
    options = [part for part in get_args(hint) if get_origin(hint) in (Union, UnionType)] or [hint]
    kind = next(part for part in options if part is not NoneType)
    is_list = get_origin(kind) is tuple
    kind = get_args(kind)[0] if is_list else kind
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return Parameter(
        field.name,
        str if choices else kind,
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
        choices,
        is_list,
        NoneType in options or field.default is None,
        **field.metadata,
    )


def _plain(value: object) -> object:
    if isinstance(value, Declared):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _built(declared: Parameter, value: Any, path: str) -> Any:
    if declared.is_list and isinstance(value, list | tuple):
        return tuple(_built_item(declared, item, path) for item in value)
    return _built_item(declared, value, path)


def _built_item(declared: Parameter, value: Any, path: str) -> Any:
    if value is not None and issubclass(declared.kind, Declared):
        return declared.kind.from_dict(value, f"{path}{declared.name}.")
    is_whole = declared.kind is float and type(value) is int
    # JSON writes 0.0 as 0. What is beyond all floats is refused as it stands.
    return float(value) if is_whole and abs(value) <= sys.float_info.max else value
