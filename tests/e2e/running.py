"""The services as processes of their own: `earvoice up`, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SERVICES = ("policy", "encoder", "decoder")
START_TIMEOUT_S = 120
# What `auto` measures depends on the machine and on what else it does.
LIMITS = {f"EARVOICE_{service.upper()}_SESSION_LIMIT": "16" for service in SERVICES}


@dataclass(frozen=True)
class Running:
    """Services that run: their addresses, the supervising process and what they wrote."""

    addresses: dict[str, str]
    process: subprocess.Popen[bytes]
    log_folder: Path

    @property
    def address(self) -> str:
        """Where the public service listens."""
        return self.addresses["policy"]

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def log(self, service: str) -> str:
        """What a service has written."""
        return "".join(path.read_text() for path in self.log_folder.glob(f"{service}*"))

    def process_of(self, service: str) -> psutil.Process:
        """The process that runs a service now."""
        for child in psutil.Process(self.process.pid).children():
            if f"earvoice.{service}" in child.cmdline():
                return child
        raise AssertionError(f"no {service} runs")

    def resident_bytes(self) -> dict[str, int]:
        """Memory of each service."""
        return {service: self.process_of(service).memory_info().rss for service in SERVICES}


def start(folder: Path, **environment: str) -> Running:
    """Start the services in a folder of their own and wait until they serve."""
    ready, logs = folder / "ready.json", folder / "logs"
    logs.mkdir()
    command = [sys.executable, "-m", "earvoice.cli", "up", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), "--log-dir", str(logs)],
        env={**os.environ, **LIMITS, **environment},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready.exists():
        assert process.poll() is None, "the services ended before they served"
        assert time.monotonic() < deadline, "the services do not serve"
        time.sleep(0.05)
    return Running(json.loads(ready.read_text()), process, logs)
