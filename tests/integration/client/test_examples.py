"""The clients that the pages show, as they stand there, against a scripted server."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.tool import NODE_MODULES, node_package, program
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import run_gateway

ROOT = Path(__file__).parents[3]
AUDIO = bytes(range(250)) * 200
# Node has its own WebSocket since version 22.
WEBSOCKET = "globalThis.WebSocket ??= (await import('ws')).default;\n"


def example(page: str, language: str) -> str:
    """The page's first program in a language."""
    text = (ROOT / "docs" / page).read_text(encoding="utf8")
    found = re.search(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


async def run(*command: str | Path) -> str:
    """What an example prints, given the audio."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=NODE_MODULES.parent if NODE_MODULES.exists() else ROOT,
    )
    output, errors = await process.communicate(AUDIO)
    assert (process.returncode, errors) == (0, b""), errors.decode()
    return output.decode()


async def run_python(code: str) -> str:
    return await run(sys.executable, "-c", code)


async def run_node(code: str) -> str:
    return await run(program("node"), "--no-warnings", "--input-type=module", "--eval", code)


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_client_by_grpc(language):
    """The whole audio is heard, and the words are printed as they come."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as address:
        code = example("clients.md", language).replace("localhost:50051", address)
        if language == "python":
            output = await run_python(code)
        else:
            for name in ("@grpc/grpc-js", "@grpc/proto-loader"):
                node_package(name)
            output = await run_node(code.replace('["protos"]', f'["{ROOT / "protos"}"]'))
    assert output == " Guten Tag."
    assert b"".join(service.audio) == AUDIO


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_client_by_websocket(language):
    """The same through the gateway."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as server, run_gateway(server) as (address, _):
        code = example("gateway.md", language).replace("localhost:8080", address)
        if language == "python":
            output = await run_python(code)
        else:
            node_package("ws")
            output = await run_node(WEBSOCKET + code)
    assert output == " Guten Tag."
    assert b"".join(service.audio) == AUDIO
