"""The clients that the pages show, as they stand there, against a scripted server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from earvoice.runtime.errors import SessionLimitError
from tests.deploy.tool import NODE_MODULES, RECIPE, node_package, output_of, program
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import run_gateway

ROOT = Path(__file__).parents[3]
GO_PACKAGES = Path("/usr/share/gocode")
AUDIO = bytes(range(250)) * 200
# Node has its own WebSocket since version 22.
WEBSOCKET = "globalThis.WebSocket ??= (await import('ws')).default;\n"


def example(page: str, language: str) -> str:
    """The page's first program in a language."""
    text = (ROOT / page).read_text(encoding="utf8")
    found = re.search(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


async def run(*command: str | Path, fails: bool = False) -> str:
    """What an example prints, given the audio; where it fails, what it says then."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=NODE_MODULES.parent if NODE_MODULES.exists() else ROOT,
    )
    output, errors = await process.communicate(AUDIO)
    if fails:
        assert process.returncode == 1
        return errors.decode()
    assert (process.returncode, errors) == (0, b""), errors.decode()
    return output.decode()


async def run_python(code: str) -> str:
    return await run(sys.executable, "-c", code)


async def run_node(code: str) -> str:
    return await run(program("node"), "--no-warnings", "--input-type=module", "--eval", code)


@pytest.mark.parametrize(
    ("page", "language"),
    [
        ("README.md", "python"),
        ("docs/clients.md", "python"),
        ("docs/clients.md", "javascript"),
    ],
)
async def test_a_client_by_grpc(page, language):
    """The whole audio is heard, and the words are printed as they come."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as address:
        code = example(page, language).replace("localhost:50051", address)
        if language == "python":
            output = await run_python(code)
        else:
            for name in ("@grpc/grpc-js", "@grpc/proto-loader"):
                node_package(name)
            output = await run_node(code.replace('["protos"]', f'["{ROOT / "protos"}"]'))
    assert output == " Guten Tag."
    assert b"".join(service.audio) == AUDIO


def build_go(folder: Path, code: str) -> Path:
    """The page's commands and its program, with the packages that Debian has of Go's."""
    go = program("go")
    if not (GO_PACKAGES / "src" / "google.golang.org" / "grpc").is_dir():
        pytest.skip(f"gRPC for Go is not in {GO_PACKAGES}: {RECIPE}")
    module = folder / "src" / "captions"
    module.mkdir(parents=True)
    (module / "protos").symlink_to(ROOT / "protos")
    (module / "main.go").write_text(code, encoding="utf8")
    for name in ("protoc", "protoc-gen-go", "protoc-gen-go-grpc"):
        program(name)
    output_of("bash", "-c", example("docs/clients.md", "shell"), folder=module)
    settings = {"GO111MODULE": "off", "GOPATH": f"{folder}:{GO_PACKAGES}", "CGO_ENABLED": "0"}
    command = [go, "build", "-o", folder / "captions", "captions"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **settings}
    )
    assert done.returncode == 0, done.stderr
    return folder / "captions"


async def test_a_client_in_go(tmp_path):
    """From the protos to words; a refusal is told by its reason."""
    service, full = ScriptedService([" Guten", " Tag", "."]), SessionLimitError("all taken")
    async with serve(service) as address, serve(ScriptedService(failure=full)) as busy:
        code = example("docs/clients.md", "go")
        code = code.replace('"localhost:50051"', 'os.Getenv("SERVER")')
        client = await asyncio.to_thread(build_go, tmp_path, code)
        assert await run("env", f"SERVER={address}", client) == " Guten Tag."
        assert "SESSION_LIMIT" in await run("env", f"SERVER={busy}", client, fails=True)
    assert b"".join(service.audio) == AUDIO


@pytest.mark.parametrize("name", ["status.proto", "error_details.proto"])
def test_protos_of_errors_are_those_of_the_wire(name):
    """What foreign clients compile is what our services are made with."""
    shipped = (ROOT / "protos" / "google" / "rpc" / name).read_bytes()
    assert shipped == (files("google.rpc") / name).read_bytes()


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_client_by_websocket(language):
    """The same through the gateway."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as server, run_gateway(server) as (address, _):
        code = example("docs/gateway.md", language).replace("localhost:8080", address)
        if language == "python":
            output = await run_python(code)
        else:
            node_package("ws")
            output = await run_node(WEBSOCKET + code)
    assert output == " Guten Tag."
    assert b"".join(service.audio) == AUDIO
