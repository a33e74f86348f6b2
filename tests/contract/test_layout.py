"""The layout that makes four folders one product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("root", ["services", "clients", "lab"])
def test_namespace_roots_have_no_init(root: str):
    """A stray earvoice/__init__.py would hide the other roots."""
    assert not (ROOT / root / "earvoice" / "__init__.py").exists()


@pytest.mark.parametrize(
    "module", ["earvoice.policy.server", "earvoice.client", "earvoice.cli.__main__"]
)
def test_light_processes_import_without_torch(module: str):
    """Neither the policy service nor a client loads torch or numpy at import."""
    code = (
        f"import sys, {module}; "
        "print([name for name in ('torch', 'torchaudio', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"


def test_no_file_is_two_stories():
    """Past 800 lines a module is split."""
    folders = [ROOT / name for name in ("services", "clients", "lab", "benchmarks", "tools")]
    long = [
        str(path.relative_to(ROOT))
        for folder in folders
        for path in folder.rglob("*.py")
        if len(path.read_text(encoding="utf8").splitlines()) > 800
    ]
    assert long == []
