"""What the images install is locked: every version with hashes, all that is needed, no more."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.tool import ROOT

DOCKER = ROOT / "deploy" / "docker"
EXTRAS = {"policy": {"policy", "auth"}, "gateway": {"gateway"}, "engine": {"encoder", "decoder"}}
IMAGE_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.9"}


def locked(name: str) -> dict[str, str]:
    """Versions by name; every entry has been seen to have a hash."""
    text = (DOCKER / "locked" / f"{name}.txt").read_text().replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines()]
    assert all(len(entry) > 1 for entry in entries)
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", h) for _, *hs in entries for h in hs)
    pins = [entry[0].split("==") for entry in entries]
    return {canonicalize_name(pinned): version for pinned, version in pins}


def needed(extras: set[str]) -> set[str]:
    """What EarVoice with these extras needs: pyproject.toml, and what is installed here, say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [("earvoice", frozenset(extras))]
    while waiting:
        if (item := waiting.pop()) in seen:
            continue
        seen.add(item)
        name, wanted = item
        if name == "earvoice":
            optional = project["optional-dependencies"]
            texts = [*project["dependencies"], *(text for e in wanted for text in optional[e])]
        else:
            texts = distribution(name).requires or []
        marks = [IMAGE_PYTHON | {"extra": extra} for extra in (*wanted, "")]
        for requirement in map(Requirement, texts):
            if requirement.marker is None or any(map(requirement.marker.evaluate, marks)):
                new = canonicalize_name(requirement.name)
                waiting.append((new, frozenset(requirement.extras)))
    return {name for name, _ in seen} - {"earvoice"}


@pytest.mark.parametrize("image", EXTRAS)
def test_everything_that_an_image_needs_is_locked(image: str):
    """As pyproject.toml says it today, and nothing that nobody needs."""
    assert set(locked(image)) == needed(EXTRAS[image])


@pytest.mark.parametrize("lock", [*EXTRAS, "engine-cuda"])
def test_versions_are_those_that_were_tested(lock: str):
    """Where constraints.txt names one."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    tested = {canonicalize_name(name): version for name, version in tested.items()}
    pins = locked(lock)
    assert {name: pins[name] for name in pins.keys() & tested.keys()} == {
        name: tested[name] for name in pins.keys() & tested.keys()
    }


def test_the_wheel_is_made_by_the_tools_that_make_it_anywhere():
    """As the build system's requirements say: constraints.txt is not for them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = map(Requirement, tomllib.load(file)["build-system"]["requires"])
    pins = locked("build")
    assert all(tool.specifier.contains(pins[canonicalize_name(tool.name)]) for tool in wanted)


def test_images_install_by_locks_alone():
    """Every pip of the Containerfile checks hashes, or may fetch nothing."""
    text = (DOCKER / "Containerfile").read_text().replace("\\\n", " ")
    commands = re.findall(r"pip --python \S+ (.*)", text)
    assert len(commands) >= 7
    for command in commands:
        fetches_nothing = "--no-index" in command or "--no-build-isolation" in command
        assert "--require-hashes" in command or (fetches_nothing and "--no-deps" in command)
