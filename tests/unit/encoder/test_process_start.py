"""A service's process sets what OpenMP reads before OpenMP is loaded."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("service", ["encoder", "decoder"])
def test_torch_comes_after_the_environment(service: str):
    """Importing a service's entry point loads no torch: `main` sets the environment first."""
    script = (
        f"import sys, earvoice.{service}.__main__\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
