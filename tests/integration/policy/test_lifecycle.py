"""The policy service over gRPC: pressure, cancellation, deadlines, draining, lost backends."""

from __future__ import annotations

import asyncio
import errno
import importlib.metadata
import os
from contextlib import AsyncExitStack

import grpc
import pytest
from google.protobuf import duration_pb2

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc
from earvoice.policy.backends import Backends
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.errors import SessionTooLongError
from tests.deploy.tool import free_port
from tests.e2e.calling import (
    Request,
    assert_well_formed,
    audio_messages,
    call,
    config,
    open_stream,
    requests,
)
from tests.integration.policy.conftest import RunningPolicy, Start
from tests.integration.policy.fleet import serve_policy
from tests.integration.policy.scripted_backends import RATE_HERTZ
from tests.proxy import open_proxy

SECOND = bytes(RATE_HERTZ * 2)


@pytest.mark.parametrize(
    "limit", [{"max_buffered_audio_ms": 1000}, {"max_buffered_audio_bytes": 65_536}]
)
async def test_audio_waits_while_it_is_not_worked_on(start: Start, limit: dict[str, int]):
    """A slow encoder stops the reading: the client's writes stop, and then go on."""
    running = await start(**limit)
    # What fills all buffers on the way is worked off in few segments.
    long = duration_pb2.Duration(seconds=10)
    async with open_stream(running.address, segment_duration=long) as stream:
        await stream.read_until("session_started")
        running.encoder.gate.clear()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(400):
                await stream.send(Request(audio=SECOND))
                sent += 1
            await stream.end_audio()

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=1)
        assert not done
        waiting = sent
        assert waiting < 400
        running.encoder.gate.set()
        reading = asyncio.create_task(stream.read_rest())
        await sending
        outcome = await reading
    assert outcome.code is grpc.StatusCode.OK
    assert outcome.of("summary")[0].audio_samples == 400 * RATE_HERTZ


async def test_who_stops_reading_at_the_socket_is_ended(start: Start):
    """Whether an unread response or an unanswered ping tells of it: its place is free again."""
    running = await start(session_limit=1, write_timeout_ms=1000)
    told = {"enable_interim_results": True, "enable_stage_timings": True}
    short = duration_pb2.Duration(nanos=200_000_000)

    async def speak_for_ever() -> None:
        while True:
            await stream.send(Request(audio=SECOND))

    async with (
        open_proxy(running.address) as proxy,
        open_stream(proxy.address, segment_duration=short, **told) as stream,
        asyncio.timeout(240),
    ):
        await stream.read_until("session_started")
        proxy.go_deaf()
        speaking = asyncio.create_task(speak_for_ever())
        await running.wait_until_idle()
        assert_well_formed(await call(running.address, requests(SECOND)))
        speaking.cancel()
        await asyncio.wait({speaking})


async def test_a_session_reads_no_package_metadata(
    running: RunningPolicy, monkeypatch: pytest.MonkeyPatch
):
    """Where no more files can be opened, sessions begin all the same."""

    def no_more_files(name: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)

    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", no_more_files)
    async with open_stream(running.address) as stream:
        started = await stream.read_until("session_started")
    assert started.session_started.server_version


async def test_a_cancelled_stream_leaves_no_session_behind(running: RunningPolicy):
    """Neither here nor in the backends, even in the middle of a generation."""
    running.decoder.gate.clear()
    async with open_stream(running.address) as stream:
        await stream.read_until("session_started")
        await stream.send(*audio_messages(SECOND))
        async with asyncio.timeout(120):
            await running.decoder.asked.wait()
        assert (running.encoder.session_count, running.decoder.session_count) == (1, 1)
    await running.wait_until_idle()


async def test_a_silent_client_is_ended(start: Start):
    """No message for too long is DEADLINE_EXCEEDED; words released before stand."""
    running = await start(idle_timeout_ms=5000)
    async with open_stream(running.address) as stream:
        await stream.send(*audio_messages(SECOND))
        outcome = await stream.read_rest()
    assert (outcome.code, outcome.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "IDLE")
    assert outcome.items
    await running.wait_until_idle()


async def test_draining_tells_the_stream_and_lets_it_end(running: RunningPolicy):
    """The session runs on; new ones are refused with a time to retry."""
    async with open_stream(running.address) as stream:
        await stream.read_until("session_started")
        draining = asyncio.create_task(running.service.drain(20.0))
        await stream.read_until("go_away")
        async with open_stream(running.address) as late:
            refused = await late.read_rest()
        await stream.send(*audio_messages(SECOND))
        await stream.end_audio()
        outcome = await stream.read_rest()
    assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    assert refused.has_retry
    assert outcome.code is grpc.StatusCode.OK
    assert outcome.items
    await draining


async def test_a_stream_without_backends_counts_as_refused():
    """The metric sees it; whoever only asks for the models is no session."""
    async with AsyncExitStack() as stack:
        nowhere = f"127.0.0.1:{free_port()}"
        backends = Backends(nowhere, nowhere)
        settings = PolicySettings(port=0, encoder_target=nowhere, decoder_target=nowhere)
        address, _, _ = await serve_policy(stack, settings, backends)
        refused = await call(address, [Request(config=config())])
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        with pytest.raises(grpc.aio.AioRpcError):
            await pb_grpc.SpeechTranslationServiceStub(channel).ListModels(pb.ListModelsRequest())
    assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    assert backends.refused == {"NOT_READY": 1}


async def test_a_stream_that_outlives_the_grace_is_ended(running: RunningPolicy):
    """Its client is told to come again."""
    async with open_stream(running.address) as stream:
        await stream.read_until("session_started")
        draining = asyncio.create_task(running.service.drain(0.5))
        outcome = await stream.read_rest()
    assert (outcome.code, outcome.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    await draining


async def test_a_backend_s_refusal_reaches_the_client_as_it_is(running: RunningPolicy):
    """Status and reason are the backend's; the other backend's session ends, too."""
    async with open_stream(running.address) as stream:
        await stream.read_until("session_started")
        running.encoder.failure = SessionTooLongError("the utterance is too long")
        await stream.send(*audio_messages(SECOND))
        outcome = await stream.read_rest()
    assert (outcome.code, outcome.reason) == (grpc.StatusCode.OUT_OF_RANGE, "SESSION_TOO_LONG")
    await running.wait_until_idle()
