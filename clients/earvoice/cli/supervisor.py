"""Child processes that are kept alive: one that dies is started again, on the same port."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from earvoice.cli import parent_death
from earvoice.cli.command import CommandError, ExitCode
from earvoice.cli.log_relay import LogRelay

# Isolated and without site-packages: it needs neither and starts faster.
SCRIPT = (sys.executable, "-I", "-S", str(parent_death.__file__))
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
CALM_S = 60.0
"""A child that lived this long resets the count of deaths in a row."""
_POLL_S = 0.02
_LAST_LINES_S = 1.0


def count_death(deaths_in_a_row: int, lived_s: float) -> int:
    """Return the count of deaths in a row after one more, of a child that lived ``lived_s``."""
    return 1 if lived_s >= CALM_S else deaths_in_a_row + 1


def restart_delay_s(deaths_in_a_row: int) -> float:
    """Return how long to wait before a child that died is started again."""
    # The exponent is bounded: 2.0 ** 1100 overflows after a bad weekend.
    return min(FIRST_DELAY_S * 2.0 ** min(deaths_in_a_row - 1, 30), LONGEST_DELAY_S)


@dataclass(frozen=True)
class ChildPlan:
    """How to run a child.

    Attributes:
        environment: all of its environment but the port and the address file.
        variable_prefix: prefix of ``PORT`` and ``ADDRESS_FILE`` in its environment.
        address_file: the child writes ``host:port`` there once it serves.
        port: to listen on; 0 takes a free one, None leaves it to the child.
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


@contextmanager
def sweeping() -> Iterator[Callable[[Path], None]]:
    """Yield a function that has a file or folder removed when this process ends, even if killed."""
    with subprocess.Popen(
        [*SCRIPT, "sweep"], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        pipe = process.stdin
        assert pipe is not None  # noqa: S101 - started with a pipe

        def add(path: Path) -> None:
            pipe.write(os.fsencode(path.absolute()) + b"\0")
            pipe.flush()

        yield add


class SupervisedChild:
    """A child that is kept alive between ``start`` and ``stop``."""

    def __init__(
        self,
        plan: ChildPlan,
        relay: LogRelay,
        notify: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._relay = relay
        self._notify = notify
        self._process: asyncio.subprocess.Process | None = None
        self._pump: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start the child and return its ``host:port`` once it serves."""
        process = await self._spawn(self._plan.port)
        address = await self._wait_until_serving(process)
        port = int(address.rpartition(":")[2])
        self._keeper = asyncio.create_task(self._keep_alive(process, port))
        return address

    async def watch(self) -> None:
        """Never return; raise whatever ends the supervision unexpectedly."""
        if self._keeper is not None:
            await asyncio.shield(self._keeper)

    async def stop(self) -> None:
        """Send SIGTERM and wait; kill the child if it takes too long or the wait is cancelled.

        A child that does not serve yet is killed at once.
        """
        try:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait({self._keeper})
            if self._process is not None:
                await self._end(self._process)
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
            if self._pump is not None:
                self._pump.cancel()

    async def _spawn(self, port: int | None) -> asyncio.subprocess.Process:
        plan = self._plan
        plan.address_file.unlink(missing_ok=True)
        environment = {
            **plan.environment,
            f"{plan.variable_prefix}ADDRESS_FILE": str(plan.address_file),
        }
        if port is not None:
            environment[f"{plan.variable_prefix}PORT"] = str(port)
        process = self._process = await asyncio.create_subprocess_exec(
            *(*SCRIPT, "exec", str(os.getpid())),
            *plan.program,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C would reach the whole foreground group, but we stop the children in order.
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - spawned with a pipe
        self._pump = asyncio.create_task(self._relay.pump(process.stdout))
        return process

    async def _wait_until_serving(self, process: asyncio.subprocess.Process) -> str:
        try:
            async with asyncio.timeout(self._plan.start_timeout_s):
                while not self._plan.address_file.exists():
                    if process.returncode is not None:
                        await self._wait(process)
                        raise self._start_error(f"ended with {process.returncode} before it served")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            limit_s = self._plan.start_timeout_s
            raise self._start_error(f"did not serve within {limit_s:g} s") from None
        return self._plan.address_file.read_text(encoding="utf8").strip()

    def _start_error(self, problem: str) -> CommandError:
        lines = f"the {self._plan.name} {problem}; its last lines:\n{self._relay.tail}"
        return CommandError(lines.strip(), ExitCode.SERVICES)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            if self._plan.address_file.exists():
                process.terminate()
            else:
                # It has nobody to finish with, and to load a model takes many seconds.
                process.kill()
        try:
            async with asyncio.timeout(self._plan.stop_timeout_s):
                await self._wait(process)
        except TimeoutError:
            process.kill()
            await self._wait(process)

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        """Return the exit status once the child has ended and its lines are passed on."""
        # asyncio's own wait also waits for the pipe, which a grandchild may hold open.
        while (status := process.returncode) is None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(_POLL_S)
        if self._pump is not None:
            # For the same reason, wait only briefly for the last lines.
            await asyncio.wait({self._pump}, timeout=_LAST_LINES_S)
        return status

    async def _keep_alive(self, process: asyncio.subprocess.Process, port: int) -> None:
        deaths_in_a_row = 0
        while True:
            born_s = time.monotonic()
            status = await self._wait(process)
            deaths_in_a_row = count_death(deaths_in_a_row, time.monotonic() - born_s)
            delay_s = restart_delay_s(deaths_in_a_row)
            self._notify(
                f"the {self._plan.name} ended with {status}; starting it again in {delay_s:g} s"
            )
            await asyncio.sleep(delay_s)
            process = await self._spawn(port)
