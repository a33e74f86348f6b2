"""The three services as separate processes, and their processor time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from earvoice.cli.local_services import ServiceChoices, run_services
from earvoice.cli.log_relay import ServiceLogs

SERVICES = ("policy", "encoder", "decoder")


@dataclass(frozen=True)
class ServiceProcesses:
    """Running services."""

    address: str
    log_folder: Path
    processes: Mapping[str, psutil.Process]

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time of each service since its start."""
        times = {service: process.cpu_times() for service, process in self.processes.items()}
        return {service: spent.user + spent.system for service, spent in times.items()}

    def log(self, service: str) -> str:
        return (self.log_folder / f"{service}.log").read_text(encoding="utf8")


@asynccontextmanager
async def run_service_processes() -> AsyncIterator[ServiceProcesses]:
    """Start the services on free ports, with their settings from the environment."""
    with TemporaryDirectory(prefix="earvoice-benchmark-") as name:
        folder = Path(name)
        choices = ServiceChoices(ports=dict.fromkeys(SERVICES, 0))
        async with run_services(choices, ServiceLogs(folder=folder)) as services:
            yield ServiceProcesses(services.addresses["policy"], folder, _children())


def _children() -> dict[str, psutil.Process]:
    children = psutil.Process().children()
    return {
        service: next(child for child in children if f"earvoice.{service}" in child.cmdline())
        for service in SERVICES
    }
