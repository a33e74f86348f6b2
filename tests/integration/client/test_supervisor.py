"""Child processes, with tiny scripts in the services' place."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

import pytest

from earvoice.cli.command import CommandError
from earvoice.cli.local_services import GATEWAY, LocalServices, ServiceChoices
from earvoice.cli.log_relay import LogRelay, ServiceLogs
from earvoice.cli.supervisor import ChildPlan, SupervisedChild
from tests.until import until

# Serves at once: writes its address (and port, so that a restart can be compared), then waits.
SERVER = """
import os, pathlib, signal, sys
port = os.environ["X_PORT"] if os.environ["X_PORT"] != "0" else "4321"
with open(os.environ["X_STARTS"], "a") as starts:
    starts.write(f"{os.getpid()} {port}\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
file = pathlib.Path(os.environ["X_ADDRESS_FILE"])
file.with_suffix(".part").write_text(f"127.0.0.1:{port}")
file.with_suffix(".part").replace(file)
signal.pause()
"""
DEAF = SERVER.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")
# Never serves, and hears no SIGTERM.
LOADING = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.environ["X_STARTS"], "a") as starts:
    starts.write(f"{os.getpid()} 0\\n")
while True: signal.pause()
"""
# Has a child of its own, which writes where it writes.
PARENT = (
    """
import os, subprocess
sleeper = subprocess.Popen(["sleep", "600"])
with open(os.path.dirname(os.environ["X_STARTS"]) + "/grandchildren", "a") as file:
    file.write(f"{sleeper.pid} ")
"""
    + SERVER
)
# Says that it was told to end, and does not.
SLOW = (
    SERVER.replace("sys.exit(0)", "file.with_suffix('.told').touch()")
    + "while True: signal.pause()\n"
)
BROKEN = "print('no such model'); raise SystemExit(3)"
STUCK = "import signal; print('loading', flush=True); signal.pause()"


def plan_of(script, folder):
    return ChildPlan(
        name="encoder",
        program=(sys.executable, "-c", script),
        environment={**os.environ, "X_STARTS": str(folder / "starts")},
        variable_prefix="X_",
        address_file=folder / "address",
    )


def starts(folder):
    """Return process id and port of each start so far."""
    lines = (folder / "starts").read_text().splitlines() if (folder / "starts").exists() else []
    return [tuple(map(int, line.split())) for line in lines]


def alive(process_id):
    """Tell whether a process runs."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_that_serves_gives_its_address(tmp_path):
    """And ends on SIGTERM."""
    child = SupervisedChild(plan_of(SERVER, tmp_path), LogRelay(), print)
    assert await child.start() == "127.0.0.1:4321"
    ((process_id, _),) = starts(tmp_path)
    assert alive(process_id)
    await child.stop()
    assert not alive(process_id)


async def test_a_child_that_does_not_serve_yet_is_not_waited_for(tmp_path):
    """It may be loading a model, which no signal interrupts."""
    plan = replace(plan_of(LOADING, tmp_path), stop_timeout_s=10_000)
    child = SupervisedChild(plan, LogRelay(), print)
    starting = asyncio.ensure_future(child.start())
    await until(lambda: starts(tmp_path))
    starting.cancel()
    await child.stop()
    ((process_id, _),) = starts(tmp_path)
    assert not alive(process_id)


async def test_a_dead_child_is_started_again_on_its_port(tmp_path):
    """Callers keep their address; the death is told."""
    told = []
    child = SupervisedChild(plan_of(SERVER, tmp_path), LogRelay(), told.append)
    await child.start()
    os.kill(starts(tmp_path)[0][0], signal.SIGKILL)
    await until(lambda: len(starts(tmp_path)) == 2)
    assert [port for _, port in starts(tmp_path)] == [4321, 4321]
    await child.stop()
    assert told == ["the encoder ended with -9; starting it again in 0.5 s"]
    assert not alive(starts(tmp_path)[1][0])


async def test_a_dead_child_is_started_again_whatever_it_leaves_behind(tmp_path):
    """Its own child may hold its pipe open, for as long as that lives."""
    child = SupervisedChild(plan_of(PARENT, tmp_path), LogRelay(), print)
    await child.start()
    os.kill(starts(tmp_path)[0][0], signal.SIGKILL)
    await until(lambda: len(starts(tmp_path)) == 2)
    await child.stop()
    for grandchild in map(int, (tmp_path / "grandchildren").read_text().split()):
        os.kill(grandchild, signal.SIGKILL)


async def test_a_first_start_that_fails_is_told_with_the_last_lines(tmp_path):
    """A wrong configuration is not tried again and again."""
    child = SupervisedChild(plan_of(BROKEN, tmp_path), LogRelay(), print)
    with pytest.raises(CommandError, match=r"ended with 3(.|\n)*no such model"):
        await child.start()
    await child.stop()


async def test_a_child_that_never_serves_is_given_up(tmp_path):
    """The message says how long it had, and what it said."""
    plan = replace(plan_of(STUCK, tmp_path), start_timeout_s=0.5)
    child = SupervisedChild(plan, LogRelay(), print)
    with pytest.raises(CommandError, match=r"did not serve within 0\.5 s"):
        await child.start()
    await child.stop()


async def test_a_deaf_child_is_killed(tmp_path):
    """After its grace."""
    plan = replace(plan_of(DEAF, tmp_path), stop_timeout_s=0.05)
    child = SupervisedChild(plan, LogRelay(), print)
    await child.start()
    await child.stop()
    assert not alive(starts(tmp_path)[0][0])


async def test_who_waits_no_more_kills_the_child(tmp_path):
    """However early: a second Ctrl-C may follow the first at once."""
    child = SupervisedChild(plan_of(SLOW, tmp_path), LogRelay(), print)
    await child.start()
    stopping = asyncio.create_task(child.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait({stopping})
    ((process_id, _),) = starts(tmp_path)
    await until(lambda: not alive(process_id))
    await child.stop()


async def test_services_whose_caller_is_waited_for_no_more_are_stopped_too(tmp_path):
    """All of them: the policy service, which the gateway calls, must not be left behind."""
    services, children = LocalServices(ServiceChoices(), ServiceLogs(), tmp_path), []
    for name, script in ((GATEWAY, SLOW), ("policy", SERVER), ("encoder", SERVER)):
        folder = tmp_path / name
        folder.mkdir()
        child = SupervisedChild(plan_of(script, folder), LogRelay(), print)
        await child.start()
        services._children[name] = child
        children.append(child)
    stopping = asyncio.create_task(services.stop())
    await until((tmp_path / GATEWAY / "address.told").exists)
    stopping.cancel()
    await asyncio.wait({stopping})
    for name in (GATEWAY, "policy", "encoder"):
        ((process_id, _),) = starts(tmp_path / name)
        await until(lambda process_id=process_id: not alive(process_id))
    for child in children:
        await child.stop()


async def test_a_stale_address_is_not_believed(tmp_path):
    """What an earlier run left behind says nothing about this one."""
    (tmp_path / "address").write_text("127.0.0.1:1")
    child = SupervisedChild(plan_of(SERVER, tmp_path), LogRelay(), print)
    assert await child.start() == "127.0.0.1:4321"
    await child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
async def test_a_killed_parent_takes_its_child_along(tmp_path):
    """No service is left behind with the port when the supervisor is killed with SIGKILL."""
    script = f"""
import asyncio, os, sys
from pathlib import Path
sys.path[:] = {sys.path!r}
from tests.integration.client.test_supervisor import SERVER, plan_of
from earvoice.cli.log_relay import LogRelay
from earvoice.cli.supervisor import SupervisedChild

async def main():
    await SupervisedChild(plan_of(SERVER, Path({str(tmp_path)!r})), LogRelay(), print).start()
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == -signal.SIGKILL
    ((process_id, _),) = starts(tmp_path)
    await until(lambda: not alive(process_id))
