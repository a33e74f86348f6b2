"""Sessions that end badly, servers that stop: nobody else notices, nothing is left behind."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1.decoder_service_pb2_grpc import (
    DecoderServiceStub,
    add_DecoderServiceServicer_to_server,
)
from earvoice.decoder.loading import LoadedDecoder
from earvoice.decoder.service import DecoderService
from earvoice.decoder.settings import DecoderSettings
from earvoice.runtime.server import ServiceServer
from tests.fakes import END_TOKEN, STATE_DIMENSION, ScriptedStrategy, served_model
from tests.integration.decoder.caller import Caller, Reason, facts_of
from tests.integration.decoder.conftest import RunningDecoder, Serve, random_states

pytestmark = pytest.mark.torch

REPOSITORY = Path(__file__).parents[3]
LONG = {"forbid_end_of_sequence": True, "max_new_tokens": 1024}


async def ready(decoder: RunningDecoder, revision: int = 1, width: int | None = None) -> Caller:
    caller = decoder.caller()
    await caller.open(session_id="some-session")
    await caller.states(random_states(0)[:, :width], revision)
    return caller


async def failure_of(caller: Caller) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await caller.call.read() is not grpc.aio.EOF:
            pass
    return caught.value


class _EndOfSession(logging.Handler):
    """Puts the log lines of ended sessions into a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[logging.LogRecord] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "session ended":
            self.lines.put_nowait(record)


@pytest.fixture
def session_ends() -> Iterator[asyncio.Queue[logging.LogRecord]]:
    logger, handler = logging.getLogger("earvoice.decoder"), _EndOfSession()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.removeHandler(handler)
    logger.setLevel(level)


async def test_failed_computation_ends_its_own_stream_only(serve: Serve) -> None:
    """ERROR, then INTERNAL with a fixed sentence; the neighbour's text is whole."""
    scripts = {1: [5, 6, ValueError("secret")], 2: [*range(5, 30), END_TOKEN]}
    decoder = await serve(served_model(), ScriptedStrategy(scripts))
    bad = await ready(decoder, 1, STATE_DIMENSION)
    good = await ready(decoder, 2, STATE_DIMENSION)
    await good.request(1, revision=2)
    found = await bad.generate(1)
    assert (found.tokens, found.done.reason) == ([5, 6], Reason.REASON_ERROR)
    code, reason, message = facts_of(await failure_of(bad))
    assert (code, reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in message
    assert (await good.hypothesis(1)).tokens == [*range(5, 30), END_TOKEN]


async def test_session_too_many_is_refused_until_one_ends(
    serve: Serve, tiny: LoadedDecoder
) -> None:
    """RESOURCE_EXHAUSTED at once, and room again after a session."""
    decoder = await serve(tiny.model, tiny.strategy, session_limit=2)
    first, _second = await ready(decoder), await ready(decoder)
    refused = facts_of(await failure_of(decoder.caller()))
    assert refused[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SESSION_LIMIT")
    await first.close()
    assert (await (await ready(decoder)).generate(1)).steps


async def test_vanished_caller_leaves_the_engine(
    decoder: RunningDecoder, session_ends: asyncio.Queue[logging.LogRecord]
) -> None:
    """A cancelled call ends its generation, and says so in one log line without any text."""
    caller = await ready(decoder)
    await caller.request(1, **LONG)
    await caller.read()
    caller.call.cancel()
    line = await session_ends.get()
    assert line.__dict__["status"] == "CANCELLED"
    assert line.__dict__["session_id"] == "some-session"
    assert line.__dict__["generations"] == 1
    assert (await (await ready(decoder)).generate(1)).steps


async def test_silent_caller_is_ended(serve: Serve, tiny: LoadedDecoder) -> None:
    """A session without commands does not stay for ever."""
    decoder = await serve(tiny.model, tiny.strategy, idle_timeout_ms=1000)
    failure = facts_of(await failure_of(await ready(decoder)))
    assert failure[:2] == (grpc.StatusCode.DEADLINE_EXCEEDED, "IDLE")


async def test_caller_that_never_reads_gives_its_session_back(
    serve: Serve, tiny: LoadedDecoder, session_ends: asyncio.Queue[logging.LogRecord]
) -> None:
    """Its generation pauses when nothing more fits, and the session ends as SLOW_READER."""
    decoder = await serve(
        tiny.model, tiny.strategy, write_timeout_ms=1000, outbox_events=4, session_limit=1
    )
    caller = decoder.caller()
    await caller.open()
    await caller.states(random_states(0, 2000))
    await caller.request(1, **LONG)
    line = await session_ends.get()
    assert line.__dict__["status"] == "SLOW_READER"
    assert (await (await ready(decoder)).generate(1)).steps


async def test_calls_before_the_model_is_loaded_are_refused(tiny: LoadedDecoder) -> None:
    """UNAVAILABLE with a reason, for both methods."""
    settings = DecoderSettings(port=0)
    server = ServiceServer(settings, [])
    add_DecoderServiceServicer_to_server(DecoderService(settings), server.grpc_server)
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = DecoderServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.DescribeModel(pb.DecoderServiceDescribeModelRequest())
        found = [facts_of(caught.value), facts_of(await failure_of(Caller(stub.Decode())))]
    assert [fact[:2] for fact in found] == [(grpc.StatusCode.UNAVAILABLE, "NOT_READY")] * 2
    await server.grpc_server.stop(grace=None)


async def test_drain_refuses_new_sessions_and_ends_the_rest_in_time(
    decoder: RunningDecoder,
) -> None:
    """A session may use the grace; when it is over, its status says to go elsewhere."""
    caller = await ready(decoder)
    drained = asyncio.create_task(decoder.service.drain(6.0))
    assert (await caller.generate(1)).steps
    refused = facts_of(await failure_of(decoder.caller()))
    assert refused[:2] == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    assert (await caller.generate(2)).steps
    ended = facts_of(await failure_of(caller))
    assert ended[:2] == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    await drained


async def test_drain_returns_when_the_last_session_has_ended(decoder: RunningDecoder) -> None:
    """Nobody waits for a grace that nobody uses."""
    caller = await ready(decoder)
    drained = asyncio.create_task(decoder.service.drain(3600.0))
    assert (await caller.generate(1)).steps
    await caller.close()
    await asyncio.wait_for(drained, 200)


async def test_process_serves_and_stops_on_sigterm(tiny_path: Path, tmp_path: Path) -> None:
    """`python -m earvoice.decoder` writes its address, answers, and exits 0."""
    address_file = tmp_path / "address"
    environment = os.environ | {
        "EARVOICE_DECODER_MODEL_PATH": str(tiny_path),
        "EARVOICE_DECODER_ADDRESS_FILE": str(address_file),
        "EARVOICE_DECODER_DEVICE": "cpu",
        "EARVOICE_DECODER_PORT": "0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "earvoice.decoder",
        env=environment,
        cwd=REPOSITORY,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    while b'"serving"' not in (line := await process.stderr.readline()):
        assert line, "the process ended before it served"
    async with grpc.aio.insecure_channel(address_file.read_text()) as channel:
        described = await DecoderServiceStub(channel).DescribeModel(
            pb.DecoderServiceDescribeModelRequest()
        )
    assert described.model.name == "tiny"
    process.send_signal(signal.SIGTERM)
    await process.stderr.read()
    assert await process.wait() == 0


async def test_process_names_what_is_wrong_with_its_model(tmp_path: Path) -> None:
    """A missing checkpoint is one line, not a traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "earvoice.decoder",
        env=os.environ
        | {
            "EARVOICE_DECODER_MODEL_PATH": str(tmp_path / "none"),
            "EARVOICE_DECODER_PORT": "0",
        },
        cwd=REPOSITORY,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert b"none" in said
    assert b"Traceback" not in said
