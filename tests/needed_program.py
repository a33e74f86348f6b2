"""Programs that some tests drive: absent they are skipped, and fail where all are installed."""

from __future__ import annotations

import os
import shutil

import pytest


def needed(name: str) -> str:
    """Where a program is; without it the test is skipped, in continuous integration it fails."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed; .ci/run installs it")
        pytest.skip(f"{name} is not installed")
    return path
