"""A service's process sets what OpenMP and gRPC's core read before they are loaded."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("service", ["encoder", "decoder", "policy"])
def test_torch_and_grpc_come_after_the_environment(service: str):
    """Importing a service's entry point loads neither: `main` sets what they read first."""
    script = (
        f"import sys, earvoice.{service}.__main__\n"
        "sys.exit(bool({'torch', 'numpy', 'grpc'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
