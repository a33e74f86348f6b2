"""``earvoice up`` with three tiny services in place of the real ones."""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from earvoice.decoder import settings as decoder_settings
from earvoice.encoder import settings as encoder_settings
from earvoice.policy import settings as policy_settings
from tests.until import until

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="up asks for the services' extras first"
)

# Serves at once; tells in which order the services start and stop, and what they were given.
SERVICE = """
import os, pathlib, signal, sys
name = "NAME"
prefix = f"EARVOICE_{name.upper()}_"

def tell(what):
    with open(os.environ["STORY"], "a") as story:
        story.write(f"{name} {what}\\n")

def stop(*_):
    tell("stops")
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
port = os.environ.get(f"{prefix}PORT", "unset")
host = os.environ.get(f"{prefix}HOST", "127.0.0.1")
address = f"{host}:{port if port != '0' else len(name) * 1000}"
targets = [os.environ.get(f"{prefix}{kind}_TARGET") for kind in ("ENCODER", "DECODER")]
tell(f"starts {port} {targets}")
print("hello", flush=True)
file = pathlib.Path(os.environ[f"{prefix}ADDRESS_FILE"])
file.with_suffix(".part").write_text(address)
file.with_suffix(".part").replace(file)
while True:
    signal.pause()
"""


@pytest.fixture
def environment(tmp_path):
    for name in ("encoder", "decoder", "policy"):
        folder = tmp_path / "earvoice" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "__main__.py").write_text(SERVICE.replace("NAME", name))
    # The command reads all settings before it starts the engines.
    for settings in (encoder_settings, decoder_settings, policy_settings):
        path = Path(settings.__file__)
        shutil.copy(path, tmp_path / "earvoice" / path.parent.name)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "STORY": str(tmp_path / "story")}


def story_of(environment):
    path = Path(environment["STORY"])
    return path.read_text().splitlines() if path.exists() else []


async def start(environment, *arguments, stderr=asyncio.subprocess.PIPE):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.cli", "up", *map(str, arguments)),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )


@pytest.fixture
def unread():
    """Return a pipe's end that takes what nobody reads."""
    reading, writing = os.pipe()
    yield writing
    os.close(writing)
    os.close(reading)


async def run_until_ready(environment, ready_file, *arguments, signal_number=signal.SIGTERM):
    """Run the command until it is ready, then end it; return addresses, status and outputs."""
    process = await start(environment, "--ready-file", ready_file, *arguments)
    await until(ready_file.exists)
    addresses = json.loads(ready_file.read_text())
    process.send_signal(signal_number)
    output, errors = await process.communicate()
    return addresses, process.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_all_services_run_and_the_policy_stops_first(environment, tmp_path, number):
    """Addresses are published, backends are known to the policy, a signal is a good end."""
    addresses, status, output, errors = await run_until_ready(
        environment, tmp_path / "ready.json", "--port", "0", signal_number=number
    )
    assert status == 0
    assert addresses["address"] == addresses["policy"] == "127.0.0.1:6000"
    assert addresses["encoder"] == addresses["decoder"] == "127.0.0.1:7000"
    assert "policy  127.0.0.1:6000" in output
    assert "encoder | hello" in errors
    story = story_of(environment)
    assert sorted(story[:2]) == ["decoder starts 0 [None, None]", "encoder starts 0 [None, None]"]
    assert story[2] == "policy starts 0 ['127.0.0.1:7000', '127.0.0.1:7000']"
    assert story[3] == "policy stops"
    assert sorted(story[4:]) == ["decoder stops", "encoder stops"]
    assert not (tmp_path / "ready.json").exists()


async def test_services_that_all_may_reach_are_reached_within_the_machine(environment, tmp_path):
    """So they may be shown secrets, which an address of the network may not."""
    for service, host in (("ENCODER", "0.0.0.0"), ("DECODER", "[::]")):
        environment[f"EARVOICE_{service}_HOST"] = host
        environment[f"EARVOICE_{service}_ACCESS_TOKEN"] = "one that is long enough"
    addresses, status, *_ = await run_until_ready(
        environment, tmp_path / "ready.json", "--port", "0", "--host", "0.0.0.0"
    )
    assert status == 0
    assert addresses["policy"] == "127.0.0.1:6000"
    assert "policy starts 0 ['127.0.0.1:7000', '[::1]:7000']" in story_of(environment)


async def test_ports_and_logs_are_where_they_were_asked_for(environment, tmp_path):
    """Given ports are kept, and a log folder takes the place of standard error."""
    logs = tmp_path / "logs"
    addresses, _, _, errors = await run_until_ready(
        environment,
        tmp_path / "ready.json",
        *("--port", "4001", "--encoder-port", "4002", "--decoder-port", "4003", "--log-dir", logs),
    )
    assert [addresses[name][-4:] for name in ("policy", "encoder", "decoder")] == [
        "4001",
        "4002",
        "4003",
    ]
    assert errors == ""
    assert (logs / "policy.log").read_text() == "hello\n"


async def test_a_service_that_fails_ends_all(environment, tmp_path):
    """Its last lines are told, the others are stopped, nothing is published."""
    (tmp_path / "earvoice" / "policy" / "__main__.py").write_text("raise SystemExit('no way')")
    process = await start(environment, "--port", "0", "--ready-file", tmp_path / "ready.json")
    _, errors = await process.communicate()
    assert process.returncode == 4
    assert "the policy ended with 1 before it served" in errors.decode()
    assert "no way" in errors.decode()
    story = story_of(environment)
    assert sorted(story[2:]) == ["decoder stops", "encoder stops"]
    assert not (tmp_path / "ready.json").exists()


LOUD = """
line = "x" * 999
for _ in range(2000):
    print(line, flush=True)
"""


def make_loud(tmp_path):
    """Let the policy service say more than any pipe holds before it serves."""
    path = tmp_path / "earvoice" / "policy" / "__main__.py"
    path.write_text(LOUD + path.read_text())


async def test_a_reader_of_the_log_that_stops_stops_nothing(environment, tmp_path, unread):
    """Nobody reads standard error: the services serve, and SIGTERM ends all."""
    make_loud(tmp_path)
    arguments = ("--port", "0", "--ready-file", tmp_path / "ready.json")
    process = await start(environment, *arguments, stderr=unread)
    await until((tmp_path / "ready.json").exists)
    process.terminate()
    async with asyncio.timeout(120):
        assert await process.wait() == 0
    assert sorted(story_of(environment)[4:]) == ["decoder stops", "encoder stops"]


async def test_a_disk_that_is_full_stops_nothing(environment, tmp_path):
    """Lines that cannot be written are dropped."""
    make_loud(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "policy.log").symlink_to("/dev/full")
    _, status, _, errors = await run_until_ready(
        environment, tmp_path / "ready.json", "--port", "0", "--log-dir", tmp_path / "logs"
    )
    assert (status, errors) == (0, "")


async def test_a_killed_up_leaves_nothing_behind(environment, tmp_path):
    """Neither its ready file nor its folder of addresses; its services end, too."""
    (tmp_path / "tmp").mkdir()
    environment["TMPDIR"] = str(tmp_path / "tmp")
    process = await start(environment, "--port", "0", "--ready-file", tmp_path / "ready.json")
    await until((tmp_path / "ready.json").exists)
    assert list((tmp_path / "tmp").glob("earvoice-*"))
    process.kill()
    await process.communicate()
    left = tmp_path / "ready.json"
    await until(lambda: not left.exists() and not any((tmp_path / "tmp").iterdir()))


async def test_a_missing_folder_is_told_before_anything_starts(environment, tmp_path):
    """A ready file that could not be written would be found out after a minute's loading."""
    process = await start(environment, "--ready-file", tmp_path / "none" / "ready.json")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "there is no folder" in errors.decode()
    assert story_of(environment) == []


@pytest.mark.parametrize(
    ("arguments", "setting", "told"),
    [
        ((), {"EARVOICE_POLICY_IDLE_TIMEOUT_MS": "1s"}, "EARVOICE_POLICY_IDLE_TIMEOUT_MS = '1s'"),
        ((), {"EARVOICE_DECODER_PRECISION": "fp8"}, "EARVOICE_DECODER_PRECISION = 'fp8'"),
        (
            ("--gateway", "--gateway-port", "0"),
            {"EARVOICE_GATEWAY_SERVER_TLS_NAME": "us"},
            "SERVER_TLS_NAME needs SERVER_TLS_CA_FILE",
        ),
        (
            ("--gateway", "--gateway-port", "0"),
            {  # either case is read
                "earvoice_policy_tls_certificate_file": "certificate",
                "EARVOICE_POLICY_TLS_KEY_FILE": "key",
            },
            "EARVOICE_POLICY_TLS_CERTIFICATE_FILE needs EARVOICE_GATEWAY_SERVER_TLS_CA_FILE",
        ),
        (
            ("--port", "1", "--gateway", "--gateway-port", "1"),
            {},
            "port 1 is given to the policy and the gateway",
        ),
    ],
)
async def test_what_would_fail_after_the_engines_fails_before(
    environment, arguments, setting, told
):
    """They take half a minute to start."""
    process = await start({**environment, **setting}, *arguments)
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert told in errors.decode()
    assert story_of(environment) == []
