"""Folders of tests that take minutes run only when somebody names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def unless_asked_for(folder: Path) -> Callable[[Path, pytest.Config], bool | None]:
    """Make a `pytest_ignore_collect` that lets a folder be collected where it is named.

    The command line names it, or something in it: `pytest tests/soak…`.
    """

    def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
        named = [Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args]
        return None if any(path.is_relative_to(folder) for path in named) else True

    return pytest_ignore_collect
