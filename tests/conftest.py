"""What holds for every test."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.absence import (
    pytest_make_collect_report,  # noqa: F401 - a hook
    pytest_runtest_makereport,  # noqa: F401 - a hook
)
from tests.shared_data import ROOT, shared_data

# The field's evaluators, where `make test-tools` has brought them.
TOOL_FOLDERS = [str(ROOT / ".work" / tool / "bin") for tool in ("simuleval", "simulstream")]
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *TOOL_FOLDERS])

# Texts that tests expect are those of fp32, whatever the machine is fast in.
for service in ("ENCODER", "DECODER"):
    os.environ.setdefault(f"EARVOICE_{service}_PRECISION", "fp32")

# What takes longest: several workers begin with it, and end together with what is short.
LONGEST_FIRST = ("e2e", "deploy", "lab", "models", "integration")

# A law says nothing about time, and a busy machine would break it by the clock.
settings.register_profile("earvoice", deadline=None)
settings.load_profile("earvoice")


@pytest.fixture(scope="session")
def shared_golden() -> Path:
    """The folder of all reference tensors, outside the repository."""
    return shared_data("golden/models").parent


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint directory: three decoder layers of four heads."""
    from tests.tiny_model import write_tiny_checkpoint  # torch is for those who ask for it

    path = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny_checkpoint(path)
    return path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first where several workers share the work."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place_in_the_order)


def _place_in_the_order(item: pytest.Item) -> int:
    path = item.path.relative_to(Path(__file__).parent)
    for place, longest in enumerate(LONGEST_FIRST):
        if path.is_relative_to(longest):
            return place
    return len(LONGEST_FIRST)


def pytest_collection_finish() -> None:
    """Keep what is imported by now out of collections.

    A collection of it all would stop every server in this process for half a second and more.
    """
    gc.collect()
    gc.freeze()
