"""One service as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 180


class LoneService:
    """A running service.

    Args:
        service: policy, encoder or decoder.
        folder: for its address and its log.
        command: what runs it.
        settings: by their names without the prefix.
        environment: further variables.
    """

    def __init__(
        self, service: str, folder: Path, command: list[str], settings: dict, environment: dict
    ) -> None:
        prefix = f"EARVOICE_{service.upper()}_"
        folder.mkdir(parents=True)
        self._address_file = folder / "address"
        self._log_file = folder / "log"
        own = {"PORT": "0", "ADDRESS_FILE": str(self._address_file), "SESSION_LIMIT": "16"}
        own |= settings
        variables = {f"{prefix}{name}": value for name, value in own.items()}
        with self._log_file.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment, **variables},
                stderr=log,
                cwd=ROOT,
            )

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log_file.read_text()

    def address(self) -> str:
        """Where it serves; waits until it does."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._address_file.exists():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline_s, "the service does not serve"
            time.sleep(0.05)
        return self._address_file.read_text()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


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
        """Start a service, or with a delay its slow twin."""
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
