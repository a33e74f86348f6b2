"""Everything that is needed at run time says its licence."""

import subprocess
import sys

from tests.conftest import ROOT


def test_every_dependency_says_its_licence():
    """By its metadata; torch and gRPC, needs of needs, are among them, tools of tests are not."""
    command = [sys.executable, ROOT / "tools" / "list_licences.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"torch", "grpcio", "MarkupSafe"} <= listed
    assert not {"earvoice", "pytest", "mweralign"} & listed
