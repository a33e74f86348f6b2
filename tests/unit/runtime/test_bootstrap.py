"""A service's process sets what OpenMP and gRPC's core read first, and cuts no ending task off."""

import asyncio
import subprocess
import sys

import pytest

from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.bootstrap import _stoppable, run_service


@pytest.mark.parametrize("service", ["encoder", "decoder", "policy"])
def test_torch_and_grpc_come_after_the_environment(service: str):
    """Importing a service's entry point loads neither: `main` sets what they read first."""
    script = (
        f"import sys, earvoice.{service}.__main__\n"
        "sys.exit(bool({'torch', 'numpy', 'grpc'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_task_that_is_ending_is_not_cut_off():
    """As gRPC's own is of a call whose handler ended in the last turn."""
    ended = []

    async def end() -> None:
        await asyncio.sleep(0.01)
        ended.append("by itself")

    async def serve() -> None:
        serve.left = asyncio.create_task(end())

    asyncio.run(_stoppable(serve()))
    assert ended == ["by itself"]


@pytest.mark.parametrize("others", [[], [KeyError("a bug")]])
def test_what_a_task_of_the_service_meets_is_told_in_a_line(others, caplog, monkeypatch):
    """As if the service itself had met it; a bug beside it keeps its traceback."""
    monkeypatch.setattr("earvoice.runtime.bootstrap.configure_logging", lambda *_: None)

    async def serve(_: GatewaySettings) -> None:
        met = ExceptionGroup("in a task", [FileNotFoundError("no such folder"), *others])
        raise ExceptionGroup("in the service", [met])

    if others:
        with pytest.raises(ExceptionGroup):
            run_service("test", GatewaySettings, serve)
        return
    assert run_service("test", GatewaySettings, serve) == 1
    assert [record.message for record in caplog.records] == ["cannot serve: no such folder"]
