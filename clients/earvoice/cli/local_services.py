"""All services on this machine, as supervised child processes."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from earvoice.cli.command import CommandError, ExitCode, gather, number_from, require_extra
from earvoice.cli.log_relay import ServiceLogs
from earvoice.cli.supervisor import ChildPlan, SupervisedChild, sweeping
from earvoice.runtime.tls import reachable_host

if TYPE_CHECKING:
    from earvoice.runtime.settings import ProcessSettings

Settings = TypeVar("Settings", bound="ProcessSettings")

START_TIMEOUT_S = 120.0
UNMEASURED_SESSION_LIMIT = 16
PROBE_S = 1.0
SERVICES = ("encoder", "decoder", "policy")
GATEWAY = "gateway"
# Added to the grace that a service gives its sessions, before it is killed.
_STOP_MARGIN_S = 5.0
_KEY_BYTES = 32


def add_start_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--start-timeout-s",
        type=number_from(0.1, 86_400, float),
        default=START_TIMEOUT_S,
        help="for each service (%(default)g)",
    )


def module_of(service: str) -> str:
    return f"earvoice.{service}"


def variable_prefix_of(service: str) -> str:
    return f"EARVOICE_{service.upper()}_"


def plan_service(
    service: str,
    folder: Path,
    *,
    port: int | None,
    start_timeout_s: float,
    settings: Mapping[str, str] = MappingProxyType({}),
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> ChildPlan:
    """Return how to run a service here.

    Args:
        port: to listen on; 0 takes a free one, None leaves it to the service's own settings.
        settings: further settings, by their names without the prefix; they override the
            environment.
        defaults: the same, but the environment overrides them.
    """
    prefix = variable_prefix_of(service)
    environment = {f"{prefix}{name}": value for name, value in defaults.items()}
    environment |= os.environ
    # Two busy thread pools on a small machine run many times slower than one.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    environment.update({f"{prefix}{name}": value for name, value in settings.items()})
    grace_ms = read_service_settings(service, settings).drain_grace_ms
    return ChildPlan(
        name=service,
        # -P: a file in the current folder must not hide a module.
        program=(sys.executable, "-P", "-m", module_of(service)),
        environment=environment,
        variable_prefix=prefix,
        address_file=folder / f"{service}.address",
        port=port,
        start_timeout_s=start_timeout_s,
        stop_timeout_s=grace_ms / 1000 + _STOP_MARGIN_S,
    )


def read_service_settings(service: str, given: Mapping[str, str]) -> ProcessSettings:
    """Read a service's settings from the environment and those `given`, which override it.

    Raises:
        CommandError: one of them is not allowed.
    """
    module = importlib.import_module(f"{module_of(service)}.settings")
    settings_class: type[ProcessSettings] = getattr(module, f"{service.capitalize()}Settings")
    return read_settings(settings_class, **{name.lower(): given[name] for name in given})


def read_settings(settings_class: type[Settings], **given: object) -> Settings:
    """The same, of a class that is at hand."""
    # A command that uses a given server does not need the services' libraries.
    from earvoice.runtime.settings import SettingsError, load_settings  # noqa: PLC0415

    try:
        return load_settings(settings_class, **given)
    except SettingsError as error:
        raise CommandError(str(error)) from error


@dataclass(frozen=True)
class ServiceChoices:
    """How to run the services here.

    Attributes:
        ports: by service; a service that is not named takes a free port, one whose port is None
            that of its own settings.
        policy_settings: further settings of the policy service, without their prefix.
        backend_settings: the same for both the encoder and the decoder.
        measures_capacity: whether encoder and decoder measure at start how many live sessions
            they can carry, unless the environment says it. Services for a single command need not
            wait for that.
        trace_folder: where each writes its spans, complete once it has stopped; None leaves it to
            their own settings.
    """

    ports: Mapping[str, int | None] = field(default_factory=dict)
    policy_settings: Mapping[str, str] = field(default_factory=dict)
    backend_settings: Mapping[str, str] = field(default_factory=dict)
    measures_capacity: bool = False
    start_timeout_s: float = START_TIMEOUT_S
    trace_folder: Path | None = None
    published: tuple[Path, ...] = ()
    gateway: bool = False

    def default_settings(self, service: str) -> Mapping[str, str]:
        if service == "policy":
            # A restarted policy service accepts the tokens of the one that died.
            return {"RESUME_KEYS": secrets.token_hex(_KEY_BYTES)}
        if self.measures_capacity or service == GATEWAY:
            return {}
        return {"SESSION_LIMIT": str(UNMEASURED_SESSION_LIMIT)}

    def settings_of(self, service: str) -> Mapping[str, str]:
        if service == GATEWAY:
            return {}
        given = self.policy_settings if service == "policy" else self.backend_settings
        if self.trace_folder is None:
            return given
        return {**given, "TRACE_FILE": str(self.trace_folder / f"{service}.jsonl")}


class LocalServices:
    """The three services as children, and the order of their starts and stops.

    Attributes:
        addresses: ``host:port`` of each service that is up, for programs of this machine; that of
            clients is ``policy``.
    """

    def __init__(self, choices: ServiceChoices, logs: ServiceLogs, folder: Path) -> None:
        self._choices = choices
        self._logs = logs
        self._folder = folder
        self._children: dict[str, SupervisedChild] = {}
        self.addresses: dict[str, str] = {}

    async def start(self) -> None:
        # The engines take half a minute to start: what would fail after them is told before.
        self._check_settings()
        await gather(self._start(backend) for backend in ("encoder", "decoder"))
        targets = {
            "ENCODER_TARGET": self.addresses["encoder"],
            "DECODER_TARGET": self.addresses["decoder"],
        }
        await self._start("policy", targets)
        if self._choices.gateway:
            await self._start(GATEWAY, {"SERVER": self.addresses["policy"]})

    def _check_settings(self) -> None:
        choices = self._choices
        settings = {
            service: read_service_settings(service, choices.settings_of(service))
            for service in (*SERVICES, *([GATEWAY] if choices.gateway else []))
        }
        if choices.gateway:
            from earvoice.gateway.settings import GatewaySettings  # noqa: PLC0415 - see above

            policy, gateway = settings["policy"], settings[GATEWAY]
            assert isinstance(gateway, GatewaySettings)  # noqa: S101 - that is how it was read
            if policy.tls_certificate_file and not gateway.server_tls_ca_file:
                certificate = policy.variable("tls_certificate_file")
                needed = gateway.variable("server_tls_ca_file")
                raise CommandError(
                    f"{certificate} needs {needed}, by which the gateway knows the certificate"
                )
        self._check_ports(settings)

    def _check_ports(self, settings: Mapping[str, ProcessSettings]) -> None:
        fields = (
            (service, own, name)
            for service, own in settings.items()
            for name in type(own).model_fields
            if name.endswith("port")
        )
        taken: dict[tuple[str, int], str] = {}
        for service, own, name in fields:
            is_main = name == "port"
            port = self._choices.ports.get(service, 0) if is_main else None
            port = getattr(own, name) if port is None else port
            if not port:
                continue
            address = reachable_host(getattr(own, own.host_field(name))), port
            owner = f"the {service}" if is_main else own.variable(name)
            if address in taken:
                raise CommandError(f"port {port} is given to {taken[address]} and {owner}")
            taken[address] = owner
            with suppress(OSError), socket.create_connection(address, PROBE_S):
                raise CommandError(
                    f"port {port} of {owner} is taken: something listens there already; give "
                    f"another, or 0 for {'any' if is_main else 'none'}",
                    ExitCode.SERVICES,
                )

    async def watch(self) -> None:
        """Never return; raise whatever ends the supervision unexpectedly."""
        await asyncio.gather(*(child.watch() for child in self._children.values()))

    async def stop(self) -> None:
        try:
            # Each service stops before those that it calls.
            for name in (GATEWAY, "policy"):
                if (caller := self._children.pop(name, None)) is not None:
                    await caller.stop()
        finally:
            await asyncio.gather(*(child.stop() for child in self._children.values()))

    async def _start(self, service: str, targets: Mapping[str, str] = MappingProxyType({})) -> None:
        plan = plan_service(
            service,
            self._folder,
            port=self._choices.ports.get(service, 0),
            start_timeout_s=self._choices.start_timeout_s,
            settings={**self._choices.settings_of(service), **targets},
            defaults=self._choices.default_settings(service),
        )
        child = SupervisedChild(plan, self._logs.relay(service), self._logs.tell)
        self._children[service] = child
        self.addresses[service] = _reachable(await child.start())


def _reachable(address: str) -> str:
    """Return the address at which this machine's programs reach a service.

    One that listens on all addresses is reached on loopback, so secrets may be sent to it: they
    do not leave the machine.
    """
    host, _, port = address.rpartition(":")
    return f"{reachable_host(host)}:{port}"


@asynccontextmanager
async def run_services(choices: ServiceChoices, logs: ServiceLogs) -> AsyncIterator[LocalServices]:
    """Run encoder, decoder and policy; yield them once all are up, and stop the policy first."""
    for extra in ("encoder", "decoder", *([GATEWAY] if choices.gateway else [])):
        require_extra(extra)
    with sweeping() as sweep, tempfile.TemporaryDirectory(prefix="earvoice-") as folder:
        sweep(Path(folder))
        for path in choices.published:
            sweep(path)
        services = LocalServices(choices, logs, Path(folder))
        try:
            await services.start()
            yield services
        finally:
            await services.stop()
            logs.close()
