"""Data outside the repository: larger than belongs into one, or not ours to ship."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EARVOICE_SHARED_DATA", ROOT.parent / "shared"))


def shared_data(name: str) -> Path:
    """Return a folder of it; skip the test aloud where it is not here."""
    if not (SHARED / name).is_dir():
        pytest.skip(f"{name} is not here (EARVOICE_SHARED_DATA or ../shared)")
    return SHARED / name
