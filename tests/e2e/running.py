"""Services as processes of their own: `earvoice up`, watched from outside, or one alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

SERVICES = ("policy", "encoder", "decoder")
START_TIMEOUT_S = 250
ROOT = Path(__file__).parents[2]
# What `auto` measures depends on the machine and on what else it does.
LIMITS = {f"EARVOICE_{service.upper()}_SESSION_LIMIT": "16" for service in SERVICES}


def earvoice(
    *arguments: object, given: str = "", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "earvoice.cli", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        input=given,
        cwd=cwd,
        env=os.environ | environment,
    )


@dataclass(frozen=True)
class Running:
    """Services that run: their addresses, the supervising process and what they wrote."""

    addresses: dict[str, str]
    process: subprocess.Popen[bytes]
    log_folder: Path

    @property
    def address(self) -> str:
        return self.addresses["policy"]

    def stop(self) -> int:
        return terminate(self.process)

    def log(self, service: str) -> str:
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


def start(folder: Path, *, options: tuple[str, ...] = (), **environment: str) -> Running:
    """Start the services in a folder of their own and wait until they serve."""
    ready, logs = folder / "ready.json", folder / "logs"
    logs.mkdir()
    command = [sys.executable, "-m", "earvoice.cli", "up", "--port", "0", *options]
    command += ["--start-timeout-s", str(START_TIMEOUT_S)]
    process = subprocess.Popen(
        [*command, "--ready-file", str(ready), "--log-dir", str(logs)],
        env={**os.environ, **LIMITS, **environment},
        stdout=subprocess.DEVNULL,
    )
    addresses = json.loads(text_once_there(ready, process))
    return Running(addresses, process, logs)


def text_once_there(path: Path, process: subprocess.Popen[bytes], log: Path | None = None) -> str:
    """What a process has written to a file once it serves; waits until it has."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not path.exists():
        told = log.read_text() if log else "see its log"
        assert process.poll() is None, f"it ended before it served: {told}"
        assert time.monotonic() < deadline_s, "it does not serve"
        time.sleep(0.05)
    return path.read_text()


def terminate(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(150)


class LoneService:
    """A running service.

    Args:
        log_file: gets its log; None for one in its folder.

    Attributes:
        log_reader: reads its log from a pipe into the file, as `up | tee` would; None where the
            service writes to the file itself.
    """

    def __init__(
        self,
        service: str,
        folder: Path,
        command: list[str],
        settings: dict,
        environment: dict,
        *,
        log_file: Path | None = None,
        log_is_piped: bool = False,
    ) -> None:
        prefix = f"EARVOICE_{service.upper()}_"
        folder.mkdir(parents=True)
        self._address_file = folder / "address"
        self._log_file = log_file or folder / "log"
        own = {"PORT": "0", "ADDRESS_FILE": str(self._address_file)}
        if service in SERVICES:
            own["SESSION_LIMIT"] = "16"
        own |= settings
        variables = {f"{prefix}{name}": value for name, value in own.items()}
        self.log_reader: subprocess.Popen[bytes] | None = None
        with self._log_file.open("w") as log:
            sink: IO[Any] = log
            if log_is_piped:
                self.log_reader = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=log)
                assert self.log_reader.stdin is not None
                sink = self.log_reader.stdin
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment, **variables},
                stderr=sink,
                cwd=ROOT,
            )
            sink.close()

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def address(self) -> str:
        return text_once_there(self._address_file, self.process, self._log_file)

    def stop(self) -> int:
        code = terminate(self.process)
        self.forget_reader()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.forget_reader()

    def forget_reader(self) -> None:
        """Wait until the log's reader has read the last line, wherever it stood."""
        if self.log_reader is not None:
            self.log_reader.send_signal(signal.SIGCONT)
            self.log_reader.wait()


class ServiceYard:
    """Starts services and stops them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._services: list[LoneService] = []

    def start(
        self,
        service: str,
        *,
        delay_ms: int | None = None,
        environment: dict | None = None,
        **settings,
    ) -> LoneService:
        command = [f"earvoice.{service}"]
        if delay_ms is not None:
            command = ["tests.e2e.delaying_service", service, str(delay_ms)]
        folder = self._folder / f"{service}-{len(self._services)}"
        started = LoneService(service, folder, command, settings, environment or {})
        self._services.append(started)
        return started

    def stop(self) -> None:
        """Stop what still runs; the policy services last started come first."""
        for service in reversed(self._services):
            if service.process.poll() is None:
                service.stop()


@contextmanager
def service_yard(folder: Path) -> Iterator[ServiceYard]:
    """Give a yard that is empty again afterwards."""
    yard = ServiceYard(folder)
    try:
        yield yard
    finally:
        yard.stop()
