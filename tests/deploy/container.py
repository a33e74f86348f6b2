"""Containers of our images, run by podman as deploy/docker/compose.yml runs them."""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deploy.tool import output_of, program

IMAGES = "localhost/earvoice-{}:dev"
# No rights at all; what each Deployment and compose.yml say as well.
CONFINED = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)
# A model is loaded and its capacity measured, on a machine that has other things to do.
PATIENCE_S = 240.0


def podman(*arguments: str) -> str:
    """What podman prints; skips the test without it."""
    # Without systemd it complains on standard error of timers that it cannot set.
    command = [program("podman"), *arguments]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


class Container:
    """One that runs.

    Args:
        name: podman's.
        probe: asks inside for its health; without one the image's own check is made.
    """

    def __init__(self, name: str, *probe: str) -> None:
        self.name = name
        self._probe = probe

    def run(self, *command: str) -> str:
        """What a command prints inside."""
        return podman("exec", self.name, *command)

    def address(self, port: int) -> str:
        """Where a published port is on this machine."""
        return podman("port", self.name, str(port)).splitlines()[0]

    def wait_until_healthy(self) -> None:
        """Ask again and again."""
        for _ in range(int(PATIENCE_S)):
            if self._is_healthy():
                return
            threading.Event().wait(1)
        pytest.fail(f"{self.name} is not healthy:\n{self.log()}")

    def log(self) -> str:
        """What it wrote."""
        return output_of(program("podman"), "logs", self.name)

    def stop(self) -> int:
        """Send SIGTERM, SIGKILL when patience is at its end; return the exit code."""
        podman("stop", "--time", f"{PATIENCE_S:g}", self.name)
        return self.exit_code()

    def exit_code(self) -> int:
        """Of its process, once that has ended."""
        return int(podman("wait", self.name))

    def _is_healthy(self) -> bool:
        about = json.loads(podman("inspect", self.name))[0]
        state = about["State"]
        if not state["Running"]:
            pytest.fail(f"{self.name} has ended with {state['ExitCode']}:\n{self.log()}")
        # podman itself would give the image's check its seconds, and a busy machine takes longer.
        kind, *check = about["Config"].get("Healthcheck", {}).get("Test", [""])
        assert self._probe or kind == "CMD-SHELL"
        command = [program("podman"), "exec", self.name, *(self._probe or ("sh", "-c", *check))]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0


def assert_confined(container: Container) -> None:
    """Not root, no capability, nothing to gain and nothing to write to."""
    status = container.run("cat", "/proc/1/status")
    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) == {"10001"}
    assert fields["CapEff"] == fields["CapBnd"] == "0" * 16
    assert fields["NoNewPrivs"] == "1"
    places = ("/", "/etc", "/opt", "/var")
    ask = f"import os; print([place for place in {places} if os.access(place, os.W_OK)])"
    assert container.run("python", "-c", ask) == "[]"


@contextmanager
def network() -> Iterator[str]:
    """A network of its own, in which containers find each other by name."""
    name = f"earvoice-{uuid.uuid4().hex[:8]}"
    podman("network", "create", name)
    try:
        yield name
    finally:
        podman("network", "rm", "--force", name)


@contextmanager
def container(service: str, *options: str, **environment: str) -> Iterator[Container]:
    """One of our images, confined; removed at the end.

    Args:
        service: whose image.
        options: of `podman run`.
        environment: the service's settings, without their prefix.
    """
    name = f"earvoice-{service}-{uuid.uuid4().hex[:8]}"
    prefix = f"EARVOICE_{service.upper()}_"
    settings = [f"--env={prefix}{key}={value}" for key, value in environment.items()]
    # Parts of torch want to know a folder that they could write to.
    temporary = () if service == "policy" else ("--tmpfs=/tmp:size=64m,mode=1777",)
    run = ("run", "--detach", "--name", name, *CONFINED, *temporary)
    podman(*run, *options, *settings, IMAGES.format(service))
    try:
        yield Container(name)
    finally:
        podman("rm", "--force", "--time", "0", name)
