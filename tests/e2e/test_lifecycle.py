"""Services that stop, die or are not read: clients are told, others go on, nothing is left."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import (
    RATE_HERTZ,
    SPEECH,
    Request,
    assert_well_formed,
    audio_messages,
    call,
    config,
    halves,
    noise,
    open_stream,
    pieces,
    requests,
    speech,
)
from tests.e2e.running import SERVICES, Running, earvoice, start
from tests.until import until

HEALTH_NAMES = {
    "policy": "earvoice.api.v1.SpeechTranslationService",
    "encoder": "earvoice.api.v1.EncoderService",
    "decoder": "earvoice.api.v1.DecoderService",
}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
PATIENCE_S = 120
RESTART_PATIENCE_S = 200
WRITE_TIMEOUT_MS = 4000
DECODER_PATIENCE_MS = 6000
# A small window of the transport, so that "never read" begins after a few responses, not 64 KiB.
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services whose processes may be killed, and who do not wait long for anybody."""
    running = start(
        tmp_path_factory.mktemp("impatient"),
        EARVOICE_POLICY_WRITE_TIMEOUT_MS=str(WRITE_TIMEOUT_MS),
        EARVOICE_DECODER_IDLE_TIMEOUT_MS=str(DECODER_PATIENCE_MS),
        EARVOICE_POLICY_REPLACEMENT_WAIT_MS=str(RESTART_PATIENCE_S * 1000),
    )
    yield running
    assert running.stop() == 0


@pytest.fixture
def passing(tmp_path) -> Iterator[Callable[..., Running]]:
    """Starts services that the test itself ends."""
    started: list[Running] = []

    def begin(**environment: str) -> Running:
        started.append(start(tmp_path, **environment))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.stop()


async def health_of(address: str, service: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


@pytest.mark.parametrize("service", SERVICES)
async def test_every_service_tells_its_health(services: Running, service: str):
    """SERVING under the full name and the empty one; an unknown name is NOT_FOUND."""
    address = services.addresses[service]
    assert await health_of(address, HEALTH_NAMES[service]) == SERVING
    assert await health_of(address, "") == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_of(address, "earvoice.api.v1.NoSuchService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_policy_serves_only_once_its_backends_answer():
    """Alone it listens, is NOT_SERVING, and refuses with a time to retry."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.policy"),
        env={
            "EARVOICE_POLICY_PORT": "0",
            # Nobody listens on a port that needs a privilege and is not assigned.
            "EARVOICE_POLICY_ENCODER_TARGET": "127.0.0.1:1",
            "EARVOICE_POLICY_DECODER_TARGET": "127.0.0.1:1",
        },
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    line: dict[str, str] = {}
    while "address" not in line:
        line = json.loads(await process.stderr.readline())
    address = line["address"]
    assert await health_of(address, HEALTH_NAMES["policy"]) == NOT_SERVING
    outcome = await call(address, [Request(config=config())])
    assert (outcome.code.name, outcome.reason) == ("UNAVAILABLE", "NOT_READY")
    assert outcome.has_retry
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        await process.stderr.read()
        assert await process.wait() == 0


async def test_sigterm_lets_a_stream_end_and_refuses_new_ones(passing):
    """GoAway, then the rest of the audio is translated; everything exits with 0."""
    running = passing(EARVOICE_POLICY_DRAIN_GRACE_MS="60000")
    first, rest = halves(speech())
    async with open_stream(running.address) as stream, asyncio.timeout(200):
        await stream.send(*first)
        await stream.read_until("segment_done")
        running.process.send_signal(signal.SIGTERM)
        go_away = (await stream.read_until("go_away")).go_away
        assert go_away.grace == duration_pb2.Duration(seconds=60)
        assert await health_of(running.address, HEALTH_NAMES["policy"]) == NOT_SERVING
        refused = await call(running.address, [Request(config=config())])
        assert (refused.code.name, refused.reason) == ("UNAVAILABLE", "NOT_READY")
        assert refused.has_retry
        await stream.send(*rest)
        await stream.end_audio()
        outcome = await stream.read_rest()
    assert_well_formed(outcome)
    assert outcome.items
    assert outcome.of("summary")[0].audio_samples == len(speech()) // 2
    assert running.process.wait(PATIENCE_S) == 0


async def test_a_stream_that_outlives_the_grace_is_ended(passing):
    """Its client is told to go elsewhere, and everything exits with 0."""
    running = passing(EARVOICE_POLICY_DRAIN_GRACE_MS="4000")
    async with open_stream(running.address) as stream, asyncio.timeout(200):
        await stream.send(*audio_messages(speech()))
        await stream.read_until("segment_done")
        running.process.send_signal(signal.SIGTERM)
        outcome = await stream.read_rest()
    assert outcome.of("go_away")
    assert (outcome.code.name, outcome.reason) == ("UNAVAILABLE", "NOT_READY")
    assert outcome.has_retry
    assert running.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("service", ["encoder", "decoder"])
async def test_a_stream_outlives_its_only_backend(impatient: Running, service: str):
    """It is started again, and the stream goes on there without another word."""
    undisturbed = await call(impatient.address, requests(speech()))
    policy, killed = impatient.process_of("policy").pid, impatient.process_of(service)
    first, rest = halves(speech())
    async with open_stream(impatient.address) as stream, asyncio.timeout(RESTART_PATIENCE_S):
        await stream.send(*first)
        await stream.read_until("committed")
        killed.send_signal(signal.SIGKILL)
        await stream.send(*rest)
        await stream.end_audio()
        outcome = await stream.read_rest()
    assert_well_formed(outcome)
    assert outcome.text == undisturbed.text
    # The impatient decoder may tire of us while the encoder is started again.
    assert outcome.of("summary")[0].replays <= 2
    assert impatient.process_of("policy").pid == policy
    assert impatient.process_of(service).pid != killed.pid


async def test_a_client_that_never_reads_is_ended_and_others_go_on(impatient: Running):
    """Its words wait in vain: RESOURCE_EXHAUSTED; meanwhile another stream is whole."""
    flood = {
        "enable_interim_results": True,
        "enable_stage_timings": True,
        "segment_duration": duration_pb2.Duration(nanos=200_000_000),
    }
    silent = open_stream(impatient.address, SMALL_WINDOW, **flood)
    async with silent as stream, asyncio.timeout(200):
        await stream.read_until("session_started")
        await stream.send(*audio_messages(speech() * 3))
        await stream.end_audio()
        assert_well_formed(await call(impatient.address, requests(speech())))
        await ended(impatient, stream.outcome.of("session_started")[0].session_id)
        outcome = await stream.read_rest()
    assert (outcome.code.name, outcome.reason) == ("RESOURCE_EXHAUSTED", "SLOW_READER")
    assert outcome.of("summary") == []


async def ended(running: Running, session_id: str) -> None:
    """Return once the log of every service has the session's last line."""
    for service in SERVICES:
        await until(lambda service=service: has_ended(running.log(service), session_id))


def has_ended(log: str, session_id: str) -> bool:
    return any(session_id in line and "session ended" in line for line in log.splitlines())


async def test_a_long_silence_costs_no_session(impatient: Running):
    """Words come after silence that is longer than the decoder's patience."""
    silence = noise(2 * DECODER_PATIENCE_MS / 1000, level=0.0005)

    async def messages() -> AsyncIterator[Request]:
        yield Request(config=config(catch_up=pb.CATCH_UP_MERGE))
        for piece in pieces(silence, RATE_HERTZ // 10 * 2):
            yield Request(audio=piece)
            await asyncio.sleep(0.1)
        for piece in pieces(speech()):
            yield Request(audio=piece)

    outcome = await call(impatient.address, messages())
    assert_well_formed(outcome)
    assert outcome.items


def test_the_command_translates_a_recording_to_json_lines():
    """`earvoice translate` brings its own services, prints an object an item, and exits with 0."""
    done = earvoice("translate", SPEECH, "--to", "de", "--fast", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    *items, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert items
    assert (end["type"], end["cause"]) == ("utterance_end", "end_of_audio")
    items = [item for item in items if item["type"] == "word"]
    for item in items:
        assert isinstance(item["text"], str)
        assert isinstance(item["starts_word"], bool)
        assert isinstance(item["utterance"], int)
        assert 0 <= item["source_start_ms"] < item["source_end_ms"] <= item["delay_ms"]
        assert item["delay_ms"] <= item["elapsed_ms"]
