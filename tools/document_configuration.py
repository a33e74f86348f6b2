"""Write `docs/configuration.md` from the settings classes; `--check` only says if it is stale.

.venv/bin/python tools/document_configuration.py
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from earvoice.decoder.settings import DecoderSettings
from earvoice.encoder.settings import EncoderSettings
from earvoice.gateway.settings import GatewaySettings
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
service names it on standard error and exits with 2. Files of certificates, keys or tokens are read
at the start and again when they change, except the gateway's own certificate
([security](security.md)).

`earvoice up`, and every command that starts services for its run, passes its own environment on to
them; its options outrank the variables. `up` chooses the engines' ports and tells the policy
service where they are; a command that runs them for itself chooses all ports.
"""

CAPACITY = """\
## Capacity

`SESSION_LIMIT=auto` measures, before a service serves, how much of its engine's time one segment of
a live session takes. The encoder encodes the first segment that reaches 10 s of audio; a share of
encoding all of it once more at the utterance's end is added. The decoder reads 40 tokens and a
draft of 8 against 250 states and takes 8 steps, alone and in a batch of 8. The limit is the
number of sessions whose segments, of the model's default duration, fill `TARGET_BUSY_RATIO` of the
engine's time. The rest of the time is for longer utterances, for segments that arrive together and
for audio that catches up. The measurement takes about a second; the log says what was measured
(`capacity measured`), and the gauge `earvoice.sessions.limit` shows the limit.

On a CPU with one thread the thread's own time is measured: waiting for a core does not count, but
sharing its caches or the memory with other work can make it longer, by a third now and then. With
several threads or a GPU it is elapsed time, the shortest of some repeats. A container's CPU limit
that is below `TORCH_THREADS` counts. What will run on the same cores later is not known: `auto`
assumes that an engine has a core for each of its threads. With three services on two cores that
holds, because the policy service needs little; leave the setting as it is. Where both engines share
one core, halve `TARGET_BUSY_RATIO` of both; where more share it, or where the limit must be the
same on every machine, set the number. A stream faster than real time, or with shorter segments than
the model's default, counts as one session and takes more than one's share: it waits for its turns
like all others, one computation a turn.

The policy service measures nothing: a live session takes it about 0.02 of a core, and the engines
refuse what is too much for them. Its `SESSION_LIMIT` bounds memory and the time of its one thread.
Services that a command starts for its own run take 16 sessions and measure nothing.
"""

THREADS = """\
## Threads

`OMP_NUM_THREADS` and `OMP_WAIT_POLICY` are OpenMP's own. Encoder and decoder set both where the
environment does not: as many threads as their `TORCH_THREADS`, and `PASSIVE`, because threads that
spin while they wait slow down every other process of the machine.

## What is not configured here

Each stream's first message sets its language, policy, segments and utterances
([protocol](protocol.md)). A model's calibrated policy and segment duration are in its
`config.json`; `earvoice models` shows them.
"""

NAMES = {
    bool: "`true` or `false`",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    SecretStr: "secret",
    tuple[str, ...]: "JSON list of texts",
}

Row = tuple[str, str, str, str]


def configuration_page() -> str:
    shared = [name for name in ServiceSettings.model_fields if not _is_overridden(name)]
    parts = [INTRODUCTION, _shared_section(shared)]
    parts += [_service_section(name, shared) for name in SERVICES]
    parts.append(_gateway_section())
    return "\n".join([*parts, CAPACITY, THREADS])


def _is_overridden(name: str) -> bool:
    """Whether a service, or a base class that it shares with one other, overrides the default."""
    return any(
        name in parent.__annotations__
        for settings in SERVICES.values()
        for parent in settings.__mro__[: settings.__mro__.index(ServiceSettings)]
    )


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


def _gateway_section() -> str:
    """Return the gateway's settings; it is not a gRPC service, and shares none of theirs."""
    fields = GatewaySettings.model_fields.items()
    rows = [_row(_prefix(GatewaySettings), name, field) for name, field in fields]
    return f"## Gateway\n\n{_table(rows)}"


def _table(rows: Iterable[Row]) -> str:
    lines = ["| variable | type, range | default | meaning |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _row(prefix: str, name: str, field: FieldInfo) -> Row:
    if not field.description:
        raise SystemExit(f"the setting {name} has no description")
    return f"`{prefix}{name.upper()}`", _type_of(field), _default_of(field), field.description


def _prefix(settings: type[BaseSettings]) -> str:
    return settings.model_config.get("env_prefix", "")


def _type_of(field: FieldInfo) -> str:
    """Return a field's type and range in words."""
    wanted: Any = field.annotation
    parts = get_args(wanted) if get_origin(wanted) in (types.UnionType, Union) else (wanted,)
    shown = [_part_type(part, field) for part in parts if part is not types.NoneType]
    return " or ".join(shown)


def _part_type(wanted: Any, field: FieldInfo) -> str:
    if get_origin(wanted) is Literal:
        values = [f"`{value}`" for value in get_args(wanted)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    metadata = field.metadata
    if get_origin(wanted) is Annotated:
        wanted, *inner = get_args(wanted)
        for part in inner:  # validators have no metadata
            metadata = [*metadata, *getattr(part, "metadata", ())]
    unit = "entries" if get_origin(wanted) is tuple else "characters"
    return NAMES[wanted] + _range_of(metadata, unit)


def _range_of(metadata: Iterable[Any], unit: str) -> str:
    bounds: dict[type, Any] = {type(item): item for item in metadata}
    if Ge in bounds and Le in bounds:
        return f", {bounds[Ge].ge:,} to {bounds[Le].le:,}"
    if MaxLen in bounds:
        return f", at most {bounds[MaxLen].max_length} {unit}"
    if MinLen in bounds:
        least = bounds[MinLen].min_length
        return ", not empty" if least == 1 else f", at least {least} {unit}"
    return ""


def _default_of(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Path):
        return f"`{value.relative_to(ROOT)}`, or its copy in an installed package"
    if isinstance(value, tuple):
        return f"`{json.dumps(value)}`"
    return f"`{value}`" if value != "" else "empty"


def main() -> int:
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
