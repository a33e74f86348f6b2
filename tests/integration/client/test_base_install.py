"""What `pip install earvoice` without extras can do: import the client, and translate."""

import asyncio
import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions

import pytest

from tests.integration.client.scripted_service import ScriptedService, serve

BLOCKED = """
import importlib.abc, sys

class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        own = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")
        if not own and top not in {allowed!r}:
            raise ModuleNotFoundError(f"{{top}} is of no base dependency", name=top)

sys.meta_path.insert(0, Only())
"""
TRANSLATION = """
import asyncio
from earvoice.client import Committed, TranslationOptions, connect
from earvoice.client.audio import send_fast

async def main():
    async with connect(sys.argv[1]) as client:
        print(*[model.name for model in (await client.list_models()).models])
        options = TranslationOptions(("de",))
        async for event in client.translate(send_fast([b"12"]), options):
            if isinstance(event, Committed):
                print(*(word.text for word in event.words))

asyncio.run(main())
"""
COMMAND = """
from earvoice.cli.__main__ import main

sys.exit(main(["translate", *sys.argv[2:], "--server", sys.argv[1]]))
"""


def name_of(requirement: str) -> str:
    return re.split(r"[ <>=!~;\[]", requirement)[0].lower().replace("_", "-")


def base_distributions() -> set[str]:
    """Names of the distributions that come without any extra, and what those bring."""
    found, asked = set(), ["earvoice"]
    while asked:
        name = asked.pop()
        found.add(name)
        requirements = distribution(name).requires or []
        needed = {name_of(line) for line in requirements if "extra ==" not in line}
        asked += needed - found
    return found


def allowed_modules() -> set[str]:
    base = base_distributions()
    return {
        module
        for module, owners in packages_distributions().items()
        if any(name_of(owner) in base for owner in owners)
    } | {"earvoice", "_editable_impl_earvoice"}


def run_blocked(program: str, *arguments: str, stdin: bytes = b"") -> subprocess.Popen:
    code = BLOCKED.format(allowed=allowed_modules()) + program
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_base_is_small():
    """gRPC, protobuf and the messages of errors, and what gRPC itself needs."""
    assert base_distributions() <= {
        "earvoice",
        "googleapis-common-protos",
        "grpcio",
        "grpcio-status",
        "protobuf",
        "typing-extensions",
    }


def test_what_is_not_of_the_base_cannot_be_imported():
    """The tests below show something."""
    _, errors = run_blocked("import pydantic_settings").communicate(timeout=200)
    assert "pydantic_settings is of no base dependency" in errors


@pytest.mark.parametrize(
    ("program", "stdin", "output"),
    [(TRANSLATION, "", "m\nGuten\nTag\n"), (COMMAND, "1234", "Guten Tag\n")],
    ids=["client", "command"],
)
async def test_a_translation_needs_no_extra(program, stdin, output):
    """Neither from Python nor by the command with raw audio."""
    async with serve(ScriptedService([" Guten", " Tag"])) as address:
        process = run_blocked(program, address, "-")
        told, errors = await asyncio.to_thread(process.communicate, stdin, timeout=200)
    assert (process.returncode, told, errors) == (0, output, "")


def test_a_recording_that_needs_an_extra_is_wrong_usage():
    """As docs/errors.md has it; the message names what to install."""
    process = run_blocked(COMMAND, "h:1", "talk.wav")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "reading recordings needs numpy: install earvoice[cli]" in errors
