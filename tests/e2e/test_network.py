"""What the processes reach at run time: this machine, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.tool import program
from tests.e2e.calling import SPEECH

pytestmark = pytest.mark.torch

ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')
CALLS = "connect,sendto,sendmsg,sendmmsg"


def addresses(trace: str) -> set[str]:
    """Every address of the internet that a traced call names."""
    return {v4 or v6 for v4, v6 in ADDRESS.findall(trace)}


def is_here(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def traced(tmp_path: Path, *command: str | Path) -> set[str]:
    """The addresses that a command and its processes send to, as the kernel is asked."""
    trace = tmp_path / "trace"
    strace = [program("strace"), "-f", "-qq", "--seccomp-bpf", f"--trace={CALLS}", "-o", trace]
    subprocess.run([*strace, sys.executable, *command], check=True, capture_output=True)
    return addresses(trace.read_text())


def test_no_service_reaches_the_network(tmp_path: Path):
    """From start to end, over a whole recording: client, policy, encoder and decoder."""
    command = ("-m", "earvoice.cli", "translate", SPEECH, "--to", "de", "--fast")
    found = traced(tmp_path, *command)
    assert found
    assert {address for address in found if not is_here(address)} == set()


def test_who_does_is_seen(tmp_path: Path):
    """192.0.2.1 is nobody's (RFC 5737); it need not be reached to be asked for."""
    (tmp_path / "call.py").write_text(
        "import socket\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:\n"
        " it.connect(('192.0.2.1', 9))\n"
    )
    assert traced(tmp_path, tmp_path / "call.py") == {"192.0.2.1"}
