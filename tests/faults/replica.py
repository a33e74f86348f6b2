"""One replica of a service: a process that keeps its port when it is started again."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.lone_service import LoneService

SERVICES = ("encoder", "decoder", "policy")
TROUBLE = ("Traceback", "unexpected error", "never awaited", "Segmentation fault")


class Replica:
    """A replica that can be hurt.

    Args:
        service: policy, encoder or decoder.
        number: among its like, from 0.
        folder: for the logs, one folder a run.
        settings: by their names without the prefix.
        environment: further variables.

    Attributes:
        address: ``host:port``, once it has been started; it stays the same.
    """

    def __init__(
        self,
        service: str,
        number: int,
        folder: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self.service = service
        self.name = f"{service}-{number}"
        self.address = ""
        self._folder = folder
        self._settings = dict(settings)
        self._environment = dict(environment)
        self._runs: list[LoneService] = []
        self._known_troubles: Counter[str] = Counter()

    @property
    def _run(self) -> LoneService:
        return self._runs[-1]

    async def start(self) -> None:
        """Start it, and return when it serves."""
        port = self.address.rpartition(":")[2] or "0"
        self._runs.append(
            LoneService(
                self.service,
                self._folder / f"{self.name}-run-{len(self._runs)}",
                [f"earvoice.{self.service}"],
                {**self._settings, "PORT": port},
                self._environment,
            )
        )
        self.address = await asyncio.to_thread(self._run.address)

    async def kill(self) -> None:
        """SIGKILL."""
        self._run.process.kill()
        await asyncio.to_thread(self._run.process.wait)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, and nothing answers."""
        self._run.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._run.process.send_signal(signal.SIGCONT)

    async def terminate(self) -> int:
        """SIGTERM, and the exit code; one that has ended already keeps the code it ended with."""
        if not self._runs:
            return 0
        return await asyncio.to_thread(self._run.stop)

    def new_troubles(self) -> list[str]:
        """What its logs should not hold, since this was asked last."""
        logs = "\n".join(run.log for run in self._runs)
        found = Counter({words: logs.count(words) for words in TROUBLE})
        new, self._known_troubles = found - self._known_troubles, found
        return [f"{self.name} logged {words!r}, {count} times" for words, count in new.items()]
