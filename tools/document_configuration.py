"""Write `docs/configuration.md` from the settings classes; `--check` only says if it is stale.

.venv/bin/python tools/document_configuration.py
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic.fields import FieldInfo

from earvoice.decoder.settings import DecoderSettings
from earvoice.encoder.settings import EncoderSettings
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.settings import ServiceSettings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"
SERVICES: dict[str, type[ServiceSettings]] = {
    "policy": PolicySettings,
    "encoder": EncoderSettings,
    "decoder": DecoderSettings,
}

INTRODUCTION = """\
# Configuration

This page is generated from the settings classes by `tools/document_configuration.py`; a test
fails when it is stale.

A service is configured by environment variables, read once at its start. A variable with a
service's prefix that names no setting is an error, and so is a value that is not allowed: the
service says which on standard error and exits with 2. Nothing is read from files.

`earvoice up`, and every command that starts services for its run, passes its own environment on to
them; it chooses their ports and addresses itself, and its options outrank the variables.
"""

THREADS = """\
## Threads

`OMP_NUM_THREADS` and `OMP_WAIT_POLICY` are OpenMP's own. Encoder and decoder set both where the
environment does not: as many threads as their `TORCH_THREADS`, and `PASSIVE`, because threads that
spin while they wait slow down every other process of the machine.

## What is not configured here

What one stream wants (language, policy, segments, utterances) is in its first message:
[protocol](protocol.md). What a model wants (calibrated policy, segment duration) is in its
`config.json`: `earvoice models` shows it.
"""

Row = tuple[str, str, str, str]


def configuration_page() -> str:
    """Return the page, from the classes as they are now."""
    shared = [name for name in ServiceSettings.model_fields if not _is_overridden(name)]
    parts = [INTRODUCTION, _shared_section(shared)]
    parts += [_service_section(name, shared) for name in SERVICES]
    return "\n".join([*parts, THREADS])


def _is_overridden(name: str) -> bool:
    return any(name in settings.__annotations__ for settings in SERVICES.values())


def _shared_section(names: Iterable[str]) -> str:
    prefixes = ", ".join(f"`{_prefix(settings)}`" for settings in SERVICES.values())
    rows = [_row("…", name, ServiceSettings.model_fields[name]) for name in names]
    return f"## Every service\n\nEach has these, with its own prefix: {prefixes}.\n\n{_table(rows)}"


def _service_section(service: str, shared: Iterable[str]) -> str:
    settings = SERVICES[service]
    rows = [
        _row(_prefix(settings), name, field)
        for name, field in settings.model_fields.items()
        if name not in shared
    ]
    return f"## {service.capitalize()}\n\n{_table(rows)}"


def _table(rows: Iterable[Row]) -> str:
    lines = ["| variable | type, range | default | meaning |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _row(prefix: str, name: str, field: FieldInfo) -> Row:
    if not field.description:
        raise SystemExit(f"the setting {name} has no description")
    return f"`{prefix}{name.upper()}`", _type_of(field), _default_of(field), field.description


def _prefix(settings: type[ServiceSettings]) -> str:
    return settings.model_config.get("env_prefix", "")


def _type_of(field: FieldInfo) -> str:
    """Return a field's type and range in words."""
    wanted: Any = field.annotation
    if get_origin(wanted) is types.UnionType:
        wanted = next(part for part in get_args(wanted) if part is not types.NoneType)
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in get_args(wanted))
    names = {bool: "`true` or `false`", int: "integer", float: "number", str: "text", Path: "path"}
    return names[wanted] + _range_of(field)


def _range_of(field: FieldInfo) -> str:
    bounds: dict[type, Any] = {type(item): item for item in field.metadata}
    if Ge in bounds and Le in bounds:
        return f", {bounds[Ge].ge:,} to {bounds[Le].le:,}"
    if MaxLen in bounds:
        return f", at most {bounds[MaxLen].max_length} characters"
    if MinLen in bounds:
        return ", not empty"
    return ""


def _default_of(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Path):
        return f"`{value.relative_to(ROOT)}`, or its copy in an installed package"
    return f"`{value}`" if value != "" else "empty"


def main() -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition(";")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    if not parser.parse_args().check:
        PAGE.write_text(configuration_page(), encoding="utf8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf8") == configuration_page():
        return 0
    print(f"{PAGE.relative_to(ROOT)} is stale: run tools/document_configuration.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
