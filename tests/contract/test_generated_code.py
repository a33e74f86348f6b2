"""What protoc has generated runs with the oldest libraries that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.shared_data import ROOT

WANTED = {
    "protobuf": ("types_pb2", r"ValidateProtobufRuntimeVersion\(\s*[\w.]+,\s*(\d+),\s*(\d+),"),
    "grpcio": (
        "speech_translation_service_pb2_grpc",
        r"GRPC_GENERATED_VERSION = '(\d+)\.(\d+)\.\d+'",
    ),
}


def oldest_allowed(name: str) -> tuple[int, ...]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    (bound,) = (line for line in dependencies if line.startswith(f"{name}>="))
    return tuple(map(int, bound.removeprefix(f"{name}>=").split(".")))


@pytest.mark.parametrize("name", WANTED)
def test_generated_code_asks_for_no_newer_library(name: str):
    """Whoever must keep an older one, as in another tool's environment, can import the client."""
    module, pattern = WANTED[name]
    spec = find_spec(f"earvoice.api.v1.{module}")
    assert spec is not None
    assert spec.origin is not None
    found = re.search(pattern, Path(spec.origin).read_text())
    assert found is not None
    assert tuple(map(int, found.groups())) <= oldest_allowed(name)
