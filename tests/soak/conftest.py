"""Soaks take minutes, so they run only when somebody names them: `make soak`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.running import SERVICES, Running, start
from tests.soak.recording import Clip, read_clips

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect nothing here for `pytest` or `pytest tests`, only for `pytest tests/soak…`."""
    asked = [Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args]
    return None if any(path.is_relative_to(FOLDER) for path in asked) else True


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services that nothing has run on before, and that write every span."""
    folder = tmp_path_factory.mktemp("services")
    spans = {f"EARVOICE_{s.upper()}_TRACE_FILE": str(folder / f"{s}.jsonl") for s in SERVICES}
    running = start(folder, **spans)
    yield running
    assert running.stop() == 0


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


@pytest.fixture(scope="session")
def clips() -> list[Clip]:
    """The demo's recording, and the shared ones where they are."""
    shared = Path(os.environ.get("EARVOICE_SHARED_DATA", ROOT.parent / "shared"))
    folders = [ROOT / "demo", shared / "data" / "speech" / "samples"]
    return read_clips([folder for folder in folders if folder.is_dir()])
