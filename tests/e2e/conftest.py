"""All three services as processes, with the shipped model, for every test here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Running, start
from tests.shared_data import shared_data


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One set of services for all tests that leave them as they were."""
    running = start(tmp_path_factory.mktemp("services"), EARVOICE_POLICY_IDLE_TIMEOUT_MS="20000")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway before services of its own."""
    folder = tmp_path_factory.mktemp("gateway")
    running = start(folder, options=("--gateway", "--gateway-port", "0"))
    yield running.addresses["gateway"]
    assert running.stop() == 0


@pytest.fixture(scope="session")
def samples() -> Path:
    return shared_data("data/speech/samples")
