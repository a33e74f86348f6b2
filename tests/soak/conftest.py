"""Soaks take minutes, so they run only when somebody names them: `make soak`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.asked_for import unless_asked_for
from tests.e2e.running import SERVICES, Running, start
from tests.soak.recording import Clip, read_clips, sample_folders
from tests.telling import tell  # noqa: F401 - a fixture

pytest_ignore_collect = unless_asked_for(Path(__file__).parent)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services that nothing has run on before, and that write every span."""
    folder = tmp_path_factory.mktemp("services")
    spans = {f"EARVOICE_{s.upper()}_TRACE_FILE": str(folder / f"{s}.jsonl") for s in SERVICES}
    running = start(folder, **spans)
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def clips() -> list[Clip]:
    """The demo's recording, and the shared ones where they are."""
    return read_clips(sample_folders())
