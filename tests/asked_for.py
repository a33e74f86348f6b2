"""Folders of tests that take minutes run only when somebody names them."""

from __future__ import annotations

from pathlib import Path

import pytest


def is_asked_for(folder: Path, config: pytest.Config) -> bool:
    """Tell whether the command line names a folder, or something in it: `pytest tests/soak…`."""
    named = [Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args]
    return any(path.is_relative_to(folder) for path in named)
