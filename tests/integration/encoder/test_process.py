from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import encoder_service_pb2_grpc
from tests.requests import finish, open_session

pytestmark = pytest.mark.torch

SERVICE_NAME = "earvoice.api.v1.EncoderService"


async def start(**settings: str) -> asyncio.subprocess.Process:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("EARVOICE_")
    }
    environment |= {f"EARVOICE_ENCODER_{name}": value for name, value in settings.items()}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "earvoice.encoder",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )


async def address_of(process: asyncio.subprocess.Process) -> str:
    while line := await process.stderr.readline():
        if b'"serving"' in line or b'"listening"' in line:
            text = line.decode()
            return text.split('"address": "')[1].split('"')[0]
    raise AssertionError("the process ended before it listened")


async def test_the_process_serves_and_drains(checkpoint_path, speech, tmp_path):
    """It becomes SERVING under its full name, answers, and ends with 0 on SIGTERM."""
    address_file = tmp_path / "address"
    process = await start(
        PORT="0", MODEL_PATH=str(checkpoint_path), ADDRESS_FILE=str(address_file), DEVICE="cpu"
    )
    async with grpc.aio.insecure_channel(await address_of(process)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE_NAME))
        async for update in watch:
            if update.status == health_pb2.HealthCheckResponse.SERVING:
                break
        watch.cancel()
        assert address_file.read_text().startswith("127.0.0.1:")
        call = encoder_service_pb2_grpc.EncoderServiceStub(channel).Encode()
        await call.write(open_session())
        await call.write(finish(1, len(speech), speech.tobytes()))
        await call.done_writing()
        answers = [answer async for answer in call]
        assert answers[-1].encoded.states.state_count > 0
        process.send_signal(signal.SIGTERM)
        await process.stderr.read()
        assert await process.wait() == 0


async def test_the_process_measures_how_many_sessions_it_bears(checkpoint_path):
    """Before it serves; the log says what was measured and what came of it."""
    process = await start(PORT="0", MODEL_PATH=str(checkpoint_path), DEVICE="cpu")
    lines = []
    while not lines or lines[-1]["message"] != "serving":
        lines.append(json.loads(await process.stderr.readline()))
    (measured,) = (line for line in lines if line["message"] == "capacity measured")
    assert measured["sessions"] >= 1
    assert measured["own_compute_ms"] > 0
    process.send_signal(signal.SIGTERM)
    await process.stderr.read()
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("settings", "status", "told"),
    [
        ({"SESION_LIMIT": "3"}, 2, "did you mean EARVOICE_ENCODER_SESSION_LIMIT"),
        ({"TORCH_THREADS": "0"}, 2, "EARVOICE_ENCODER_TORCH_THREADS"),
        ({"PORT": "0", "MODEL_PATH": "nowhere"}, 1, "nowhere"),
        ({"PORT": "0", "HOST": "0.0.0.0"}, 2, "can be reached from other machines"),
        ({"PORT": "0", "TLS_CERTIFICATE_FILE": "nowhere", "TLS_KEY_FILE": "key"}, 1, "nowhere"),
    ],
)
async def test_bad_settings_end_the_process(settings, status, told):
    """A misspelt variable, a value out of range and a missing model are told and end it."""
    process = await start(**settings)
    output = (await process.stderr.read()).decode()
    assert await process.wait() == status
    assert told in output
    assert "Traceback" not in output


async def test_a_missing_gpu_is_told(checkpoint_path):
    """Asking for a GPU where there is none ends the process with a sentence, not a fallback."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    process = await start(PORT="0", MODEL_PATH=str(checkpoint_path), DEVICE="cuda")
    output = (await process.stderr.read()).decode()
    assert await process.wait() == 1
    assert "torch sees no GPU" in output
