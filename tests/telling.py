"""Saying numbers to the person who waits for a long test."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def tell(
    request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> Callable[[str], None]:
    """Says a number to the person who waits, whatever pytest captures."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    assert reporter is not None

    def write(line: str) -> None:
        with capfd.disabled():
            reporter.ensure_newline()
            reporter.write_line(f"  {line}", flush=True)

    return write
