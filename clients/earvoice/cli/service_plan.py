"""The three services as child processes: programs and environments."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from earvoice.cli.child_process import ChildPlan
from earvoice.cli.command import CommandError
from earvoice.runtime.settings import ServiceSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SERVICES = ("encoder", "decoder", "policy")
# Over the grace that a service gives its sessions, before it is killed.
_STOP_MARGIN_S = 5.0


def module_of(service: str) -> str:
    """Return the module that runs a service."""
    return f"earvoice.{service}"


def variable_prefix_of(service: str) -> str:
    """Return the prefix of a service's settings in the environment."""
    return f"EARVOICE_{service.upper()}_"


def plan_service(
    service: str,
    folder: Path,
    *,
    port: int | None,
    start_timeout_s: float,
    settings: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> ChildPlan:
    """Return how to run a service here.

    Args:
        service: one of ``SERVICES``.
        folder: for its address file.
        port: to listen on; 0 takes a free one, None leaves it to the service's own settings.
        start_timeout_s: how long it may take to serve.
        settings: further settings, by their names without the prefix; they outrank the
            environment.
        defaults: the same for those that the environment outranks.
    """
    prefix = variable_prefix_of(service)
    environment = {f"{prefix}{name}": value for name, value in (defaults or {}).items()}
    environment |= os.environ
    # Two busy pools of threads on a small machine run many times slower than one.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    environment.update({f"{prefix}{name}": value for name, value in (settings or {}).items()})
    return ChildPlan(
        name=service,
        # -P: the folder one happens to stand in must not hide a module.
        program=(sys.executable, "-P", "-m", module_of(service)),
        environment=environment,
        variable_prefix=prefix,
        address_file=folder / f"{service}.address",
        port=port,
        start_timeout_s=start_timeout_s,
        stop_timeout_s=_drain_grace_s(environment, prefix) + _STOP_MARGIN_S,
    )


def _drain_grace_s(environment: Mapping[str, str], prefix: str) -> float:
    name = f"{prefix}DRAIN_GRACE_MS"
    default = ServiceSettings.model_fields["drain_grace_ms"].default
    value = environment.get(name, str(default))
    if not value.isdecimal():
        raise CommandError(f"{name} = {value!r} is not allowed; allowed: milliseconds, 0 or more")
    return int(value) / 1000
