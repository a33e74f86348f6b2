"""The policies there are: our own, those of installed packages, and those in files.

Code is only ever loaded from what the caller of these functions names, never from what came over
the wire: a remote client can only name a policy that the server's operator has chosen to serve.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from earvoice.policies.agreement import LocalAgreement, SharedPrefix
from earvoice.policies.attention import AlignAtt, Edatt
from earvoice.policies.base import DecisionPolicy
from earvoice.policies.frame_schedule import FrameSchedule
from earvoice.policies.plain import HoldN, Offline, Transducer
from earvoice.policies.wait_k import StridedWaitK, WaitK
from earvoice.runtime.parameter import (
    ParameterError,
    format_value,
    parameters_of,
    parse_assignments,
)

ENTRY_POINT_GROUP = "earvoice.policies"
FILE_FORM = "FILE.py:CLASS"

Value = bool | int | float | str | tuple[Any, ...]
Policies = Mapping[str, type[DecisionPolicy]]

POLICIES: Policies = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Edatt,
            AlignAtt,
            LocalAgreement,
            SharedPrefix,
            HoldN,
            WaitK,
            StridedWaitK,
            FrameSchedule,
            Transducer,
            Offline,
        )
    }
)
"""Our own, by name."""


@dataclass(frozen=True)
class NamedPolicy:
    """A policy that is not known here, as named in a request to a server that has it."""

    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.parameters)


AnyPolicy = DecisionPolicy | NamedPolicy


class PolicyLoadError(ValueError):
    """A third party's policy cannot be used; the message says where it is and why."""


def installed_policies() -> Policies:
    """Return our own policies and those of installed packages, by name."""
    policies = dict(POLICIES)
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        place = f"entry point {entry.name} = {entry.value}"
        try:
            found = entry.load()
        except Exception as error:
            raise PolicyLoadError(f"{place}: {type(error).__name__}: {error}") from error
        _add(policies, _checked(found, place), place)
    return policies


def with_files(policies: Policies, files: Iterable[str]) -> Policies:
    """Return policies and those of files, each ``FILE.py:CLASS``, by name.

    Raises:
        PolicyLoadError: one of them cannot be used, or has the name of another.
    """
    added = dict(policies)
    for text in files:
        _add(added, load_file(text), text)
    return added


def with_policy(policies: Policies, policy: DecisionPolicy) -> Policies:
    """Return policies and the class of one more, by name."""
    added = dict(policies)
    _add(added, type(policy), type(policy).__qualname__)
    return added


def is_file_form(text: str) -> bool:
    """Say whether a policy's text begins with a file: ``FILE.py:CLASS``."""
    return bool(re.match(r".*\.py(:|$)", text))


def load_file(text: str) -> type[DecisionPolicy]:
    """Run a file and return its policy.

    Args:
        text: ``FILE.py:CLASS``; a relative file is looked for from here.
    """
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise PolicyLoadError(f"policy = {text!r} is not allowed; allowed: {FILE_FORM}")
    path = Path(file).resolve()
    if not path.is_file():
        raise PolicyLoadError(f"policy = {text!r}: there is no file {path}")
    # One file is one module, however often it is named: its class stays the same object.
    module_name = f"earvoice_policy_file_{path.as_posix().encode().hex()}"
    module = sys.modules.get(module_name)
    if module is None:
        specification = importlib.util.spec_from_file_location(module_name, path)
        if specification is None or specification.loader is None:
            raise PolicyLoadError(f"policy = {text!r}: {path} is not a Python file")
        module = importlib.util.module_from_spec(specification)
        # Dataclasses look their module up here.
        sys.modules[module_name] = module
        try:
            specification.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]
            raise PolicyLoadError(f"policy = {text!r}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise PolicyLoadError(
            f"policy = {text!r}: {path.name} has no {name}; it has {_policies_in(module) or 'none'}"
        )
    return _checked(getattr(module, name), f"policy = {text!r}")


def find_policy(name: str) -> type[DecisionPolicy]:
    """Return a policy by its name (hyphens may stand for underscores) or its file."""
    if is_file_form(name):
        return load_file(name)
    wanted = name.replace("-", "_")
    # Installed packages are searched only if it is not one of ours: that takes time.
    policies = POLICIES if wanted in POLICIES else installed_policies()
    if wanted not in policies:
        raise ParameterError("policy", name, f"{', '.join(policies)}, {FILE_FORM}")
    return policies[wanted]


def choose_policy(policy: str, **parameters: object) -> DecisionPolicy:
    """Return a policy with parameters; what is left out takes its default, or the model's value.

    Raises:
        ParameterError: no such policy or parameter, or a value that is not allowed.
        PolicyLoadError: a file or an installed package's policy cannot be used.
    """
    return find_policy(policy).from_dict(parameters, f"{policy}:")


def with_parameters(policy: DecisionPolicy, parameters: Mapping[str, object]) -> DecisionPolicy:
    return type(policy).from_dict({**policy.to_dict(), **parameters}, f"{policy.name}:")


def split_policy_text(text: str) -> tuple[str, str]:
    """Return name, or file and class, and what follows them in ``NAME:PARAMETERS``."""
    file, py, rest = text.partition(".py:") if is_file_form(text) else ("", "", text)
    name = re.split("[:@]", rest, maxsplit=1)[0]
    return f"{file}{py}{name}", rest.removeprefix(name).removeprefix(":")


def parse_policy(text: str) -> DecisionPolicy:
    """Return the policy that a text stands for.

    Args:
        text: ``NAME``, or ``NAME:PARAMETER=VALUE,PARAMETER=VALUE``, or the same with
            ``FILE.py:CLASS`` in place of the name. Hyphens may stand for underscores, flags are
            ``true`` or ``false``, items of a list are joined by ``+``.
    """
    name, parameters = split_policy_text(text)
    policy = find_policy(name)
    try:
        return policy(**parse_assignments(parameters_of(policy), parameters))
    except ParameterError as error:
        raise error.within(f"{name}:") from None


def resolved_file(text: str) -> str:
    """Return ``FILE.py:CLASS`` of a policy's text, the file as an absolute path."""
    file, _, class_name = split_policy_text(text)[0].rpartition(":")
    return f"{Path(file).resolve()}:{class_name}"


def format_policy(policy: AnyPolicy) -> str:
    """Return the text that `parse_policy` reads back.

    Known numbers are always included; known texts, flags and lists only if not the default.
    """
    known = {} if isinstance(policy, NamedPolicy) else parameters_of(type(policy))
    given = [
        f"{name}={format_value(value)}"
        for name, value in policy.to_dict().items()
        if name not in known
        or type(value) in (int, float)
        or getattr(policy, name) != known[name].default
    ]
    return f"{policy.name}:{','.join(given)}" if given else policy.name


def _add(
    policies: dict[str, type[DecisionPolicy]], policy: type[DecisionPolicy], place: str
) -> None:
    taken = policies.setdefault(policy.name, policy)
    if taken is not policy:
        raise PolicyLoadError(
            f"{place}: name = {policy.name!r} is not allowed; allowed: another than "
            f"{taken.__qualname__}'s"
        )


def _checked(found: object, place: str) -> type[DecisionPolicy]:
    if not isinstance(found, type) or not issubclass(found, DecisionPolicy):
        raise PolicyLoadError(f"{place}: it is not a subclass of earvoice.policies.DecisionPolicy")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise PolicyLoadError(f"{place}: {found.__name__} does not define {missing}")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", found.name):
        raise PolicyLoadError(
            f"{place}: {found.__name__}.name = {found.name!r} is not allowed; allowed: lower case, "
            "digits and underscores, at most 64"
        )
    if any(isinstance(value, Field) for value in vars(found).values()):
        raise PolicyLoadError(f"{place}: {found.__name__} is not a @dataclass(frozen=True)")
    try:
        parameters_of(found)
    except Exception as error:
        raise PolicyLoadError(f"{place}: {type(error).__name__}: {error}") from error
    return found


def _policies_in(module: object) -> str:
    return ", ".join(
        name
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, DecisionPolicy) and found.name
    )
