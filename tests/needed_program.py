"""Programs that a test drives and no test can do without."""

from __future__ import annotations

import shutil

import pytest


def needed(name: str) -> str:
    """Where a program is; without it the test is skipped (see `tests/absence.py`)."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: make test-tools installs it")
    return path
