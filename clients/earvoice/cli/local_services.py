"""All services on this machine, as supervised child processes."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.registry import require_extra
from earvoice.cli.service_plan import plan_service
from earvoice.cli.supervisor import SupervisedChild

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from earvoice.cli.log_relay import LogFolder

START_TIMEOUT_S = 120.0
UNMEASURED_SESSION_LIMIT = 16
_KEY_BYTES = 32


@dataclass(frozen=True)
class ServiceChoices:
    """How to run the services here.

    Attributes:
        ports: by service; a service that is not named takes a free port, one whose port is None
            what its own settings say.
        policy_settings: further settings of the policy service, without their prefix.
        backend_settings: the same of both the encoder and the decoder.
        measures_capacity: whether encoder and decoder measure at their start how many live
            sessions they bear, where the environment does not say it. What runs for one command
            need not wait for that.
        start_timeout_s: how long each may take to serve.
        trace_folder: where each writes its spans, complete once it has stopped; None leaves it to
            their own settings.
    """

    ports: Mapping[str, int | None] = field(default_factory=dict)
    policy_settings: Mapping[str, str] = field(default_factory=dict)
    backend_settings: Mapping[str, str] = field(default_factory=dict)
    measures_capacity: bool = False
    start_timeout_s: float = START_TIMEOUT_S
    trace_folder: Path | None = None

    def default_settings(self, service: str) -> Mapping[str, str]:
        """Return the settings of a service that its environment may change."""
        if service == "policy":
            # One that is started again takes the tokens of the one that died.
            return {"RESUME_KEYS": secrets.token_hex(_KEY_BYTES)}
        if self.measures_capacity:
            return {}
        return {"SESSION_LIMIT": str(UNMEASURED_SESSION_LIMIT)}

    def trace_settings(self, service: str) -> Mapping[str, str]:
        """Return the setting that has a service write its spans here, if any."""
        if self.trace_folder is None:
            return {}
        return {"TRACE_FILE": str(self.trace_folder / f"{service}.jsonl")}


@dataclass(frozen=True)
class LocalServices:
    """The running services.

    Attributes:
        addresses: ``host:port`` by service; clients use ``policy``.
        children: the supervised processes.
    """

    addresses: Mapping[str, str]
    children: tuple[SupervisedChild, ...]

    async def watch(self) -> None:
        """Return never; raise what ends the supervision unexpectedly."""
        await asyncio.gather(*(child.watch() for child in self.children))


@asynccontextmanager
async def run_services(choices: ServiceChoices, logs: LogFolder) -> AsyncIterator[LocalServices]:
    """Run encoder, decoder and policy; give them when all serve, and stop the policy first.

    Raises:
        CommandError: what a service needs is not installed.
        ServiceStartError: a service did not come to serve.
    """
    for extra in ("encoder", "decoder"):
        require_extra(extra)
    with tempfile.TemporaryDirectory(prefix="earvoice-") as folder:
        plant = _Plant(choices, logs, Path(folder))
        try:
            yield await plant.start()
        finally:
            await plant.stop()
            logs.close()


class _Plant:
    """The three children and the order of their starts and stops."""

    def __init__(self, choices: ServiceChoices, logs: LogFolder, folder: Path) -> None:
        self._choices = choices
        self._logs = logs
        self._folder = folder
        self._children: dict[str, SupervisedChild] = {}

    async def start(self) -> LocalServices:
        encoder, decoder = await self._start_backends()
        targets = {"ENCODER_TARGET": encoder, "DECODER_TARGET": decoder}
        policy = await self._start("policy", {**self._choices.policy_settings, **targets})
        addresses = {"policy": policy, "encoder": encoder, "decoder": decoder}
        return LocalServices(addresses, tuple(self._children.values()))

    async def stop(self) -> None:
        policy = self._children.pop("policy", None)
        try:
            if policy is not None:
                await policy.stop()
        finally:
            await asyncio.gather(*(child.stop() for child in self._children.values()))

    async def _start_backends(self) -> tuple[str, str]:
        try:
            async with asyncio.TaskGroup() as group:
                settings = self._choices.backend_settings
                encoder = group.create_task(self._start("encoder", settings))
                decoder = group.create_task(self._start("decoder", settings))
        except ExceptionGroup as failures:
            # One failure cancels the other start: there is only one to tell.
            raise failures.exceptions[0] from None
        return encoder.result(), decoder.result()

    async def _start(self, service: str, settings: Mapping[str, str] | None = None) -> str:
        plan = plan_service(
            service,
            self._folder,
            port=self._choices.ports.get(service, 0),
            start_timeout_s=self._choices.start_timeout_s,
            settings={**(settings or {}), **self._choices.trace_settings(service)},
            defaults=self._choices.default_settings(service),
        )
        child = SupervisedChild(plan, self._logs.relay(service), _notify)
        self._children[service] = child
        return await child.start()


def _notify(message: str) -> None:
    print(f"earvoice: {message}", file=sys.stderr, flush=True)
