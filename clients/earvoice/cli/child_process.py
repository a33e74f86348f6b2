"""One run of a child process, from its start to its exit."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from earvoice.cli import child_guard
from earvoice.cli.command import CommandError
from earvoice.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from earvoice.cli.log_relay import LogRelay

_POLL_S = 0.02
_LAST_LINES_S = 1.0


@dataclass(frozen=True)
class ChildPlan:
    """How to run a child.

    Attributes:
        name: for messages and logs.
        program: path and arguments.
        environment: all of its environment but the port and the address file.
        variable_prefix: before ``PORT`` and ``ADDRESS_FILE`` in its environment.
        address_file: the child writes ``host:port`` there once it serves.
        port: to listen on; 0 takes a free one, None leaves it to the child.
        start_timeout_s: how long it may take to serve.
        stop_timeout_s: how long it may take to end after SIGTERM before it is killed.
    """

    name: str
    program: tuple[str, ...]
    environment: Mapping[str, str]
    variable_prefix: str
    address_file: Path
    port: int | None = 0
    start_timeout_s: float = 120.0
    stop_timeout_s: float = 15.0


class ServiceStartError(CommandError):
    """A service did not come to serve; the message ends with its last log lines."""

    def __init__(self, message: str, last_lines: str) -> None:
        super().__init__(f"{message}\n{last_lines}".strip(), ExitCode.SERVICES)


class ChildProcess:
    """A child that has been started; make one with ``spawn``."""

    def __init__(
        self, plan: ChildPlan, process: asyncio.subprocess.Process, relay: LogRelay
    ) -> None:
        self._plan = plan
        self._process = process
        self._relay = relay
        assert process.stdout is not None  # noqa: S101 - spawned with a pipe
        self._pump = asyncio.create_task(relay.pump(process.stdout))

    @classmethod
    async def spawn(cls, plan: ChildPlan, port: int | None, relay: LogRelay) -> Self:
        """Start the child.

        Args:
            plan: how.
            port: to listen on; None leaves it to the child.
            relay: where its lines go.
        """
        plan.address_file.unlink(missing_ok=True)
        environment = dict(plan.environment)
        environment[f"{plan.variable_prefix}ADDRESS_FILE"] = str(plan.address_file)
        if port is not None:
            environment[f"{plan.variable_prefix}PORT"] = str(port)
        process = await asyncio.create_subprocess_exec(
            # Isolated and without site-packages: the guard needs neither and starts faster.
            *(sys.executable, "-I", "-S", str(child_guard.__file__), str(os.getpid())),
            *plan.program,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C reaches the whole foreground group; the order of stopping is ours to keep.
            start_new_session=True,
        )
        return cls(plan, process, relay)

    async def wait_until_serving(self) -> str:
        """Return the child's ``host:port``.

        Raises:
            ServiceStartError: it exited first, or took too long.
        """
        try:
            async with asyncio.timeout(self._plan.start_timeout_s):
                while not self._plan.address_file.exists():
                    if self._process.returncode is not None:
                        await self.wait()
                        raise ServiceStartError(
                            f"the {self._plan.name} ended with {self._process.returncode} "
                            "before it served; its last lines:",
                            self._relay.tail,
                        )
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ServiceStartError(
                f"the {self._plan.name} did not serve within {self._plan.start_timeout_s:g} s; "
                "its last lines:",
                self._relay.tail,
            ) from None
        return self._plan.address_file.read_text(encoding="utf8").strip()

    async def wait(self) -> int:
        """Return the exit status once the child has ended and its lines are passed on."""
        status = await self._process.wait()
        # A grandchild may hold the pipe open: its lines are not waited for.
        await asyncio.wait({self._pump}, timeout=_LAST_LINES_S)
        return status

    async def stop(self) -> None:
        """Send SIGTERM and wait; kill the child when it takes too long or nobody waits any more."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(self._plan.stop_timeout_s):
                await self.wait()
        except TimeoutError:
            self._process.kill()
            await self.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
            self._pump.cancel()
