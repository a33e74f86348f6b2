"""Fuzzing takes minutes, so it runs only when somebody names it: `make fuzz`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.asked_for import unless_asked_for
from tests.e2e.running import Running, start
from tests.telling import tell  # noqa: F401 - a fixture

pytest_ignore_collect = unless_asked_for(Path(__file__).parent)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services that do not wait long for anybody."""
    running = start(
        tmp_path_factory.mktemp("services"),
        EARVOICE_POLICY_IDLE_TIMEOUT_MS="2000",
        EARVOICE_POLICY_WRITE_TIMEOUT_MS="1000",
        EARVOICE_POLICY_SESSION_LIMIT="1000",
        EARVOICE_ENCODER_SESSION_LIMIT="1000",
        EARVOICE_DECODER_SESSION_LIMIT="1000",
        # Large blocks go back to the system when they are freed, at once: what is left is held.
        MALLOC_MMAP_THRESHOLD_="131072",
    )
    yield running
    assert running.stop() == 0
