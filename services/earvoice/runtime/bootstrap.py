"""How every service's process begins and ends. Imports neither grpc nor torch."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import selectors
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from earvoice.runtime.log import configure_logging
from earvoice.runtime.settings import (
    ModelSettings,
    ProcessSettings,
    SettingsError,
    address_of,
    load_settings,
)

Settings = TypeVar("Settings", bound=ProcessSettings)

LAST_TURNS_S = 0.5
"""How long tasks that are ending may take when everything has been closed."""


def run_service(
    name: str,
    settings_class: type[Settings],
    serve: Callable[[Settings], Coroutine[Any, Any, None]],
    *,
    failures: tuple[type[Exception], ...] = (OSError,),
    selector: selectors.BaseSelector | None = None,
) -> int:
    """Run a service until it has drained; return the process's exit status.

    Args:
        failures: exceptions that keep it from serving; their messages are logged.

    Returns:
        0 after a drain or a signal before it served, 1 when it cannot serve, 2 when the
        configuration is wrong.
    """
    try:
        settings = load_settings(settings_class)
        configure_logging(name, settings.log_level)
        # Read when gRPC is imported. We log errors ourselves; its core would also report the end of
        # a connection as one.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        if isinstance(settings, ModelSettings):
            # OpenMP reads these when torch is imported. Threads that spin while they wait slow
            # every other process on the machine down by an order of magnitude.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            os.environ.setdefault("OMP_NUM_THREADS", str(settings.torch_threads))
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(_stoppable(serve(settings)))
    except asyncio.CancelledError:
        logging.getLogger(f"earvoice.{name}").info("stopped before it served")
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except failures as error:
        return _cannot_serve(name, error)
    except ExceptionGroup as group:
        # What a task of the service raised.
        known, others = group.split(failures)
        if known is None or others is not None:
            raise
        return _cannot_serve(name, known)
    return 0


def _cannot_serve(name: str, error: Exception) -> int:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    logging.getLogger(f"earvoice.{name}").critical("cannot serve: %s", error)
    return 1


async def _stoppable(serving: Coroutine[Any, Any, None]) -> None:
    """Serve; a signal ends it at once until the server handles signals itself and drains."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type: a coroutine runs in a task
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    await serving
    # gRPC's own task for a call that was cut off ends some turns after its handler; if the event
    # loop ends before that, it cancels the task, and gRPC writes a traceback.
    if others := asyncio.all_tasks() - {task}:
        await asyncio.wait(others, timeout=LAST_TURNS_S)


def cannot_listen(settings: ProcessSettings, port_field: str, error: Exception) -> OSError:
    """Return the error that names the setting at fault: the port's, or the host."""
    host_field = settings.host_field(port_field)
    # gRPC gives no number: somebody took the port after we had looked.
    number = getattr(error, "errno", errno.EADDRINUSE)
    wrong = port_field if number in (errno.EADDRINUSE, errno.EACCES) else host_field
    address = address_of(getattr(settings, host_field), getattr(settings, port_field))
    reason = str(getattr(error, "strerror", None) or error)
    reason = reason.partition(" (")[0]  # what Python may add there repeats the address
    return OSError(f"{settings.variable(wrong)}: cannot listen on {address}: {reason}")
