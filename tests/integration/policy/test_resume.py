"""Sessions that are interrupted and go on at another replica, over the wire."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.deploy.tool import free_port
from tests.e2e.calling import Outcome, Request, audio_messages, call, config, open_stream, pieces
from tests.integration.policy.conftest import RunningPolicy, Start
from tests.integration.policy.metrics_page import read_values
from tests.integration.policy.scripted_backends import RATE_HERTZ

KEY = "5a" * 32
AUDIO = bytes(RATE_HERTZ * 2 * 17)
FRAME_BYTES = 2


async def replicas(start: Start, **settings: object) -> tuple[RunningPolicy, RunningPolicy]:
    """Two policy services that take each other's tokens."""
    return await start(resume_keys=KEY, **settings), await start(resume_keys=KEY, **settings)


def messages(audio: bytes, **changes: object) -> list[Request]:
    return [Request(config=config(**changes)), *(Request(audio=a) for a in pieces(audio, 9000))]


def points(outcome: Outcome) -> list[tuple[int, bytes, int]]:
    """Every token: how many responses there were by then, it, and the position acknowledged."""
    found = []
    for count, response in enumerate(outcome.responses, 1):
        for kind in ("committed", "end_of_utterance"):
            if response.WhichOneof("message") == kind:
                told = getattr(response, kind)
                found.append((count, told.resume_token, told.acknowledged_samples))
    return found


def essence(response: pb.StreamingTranslateResponse) -> pb.StreamingTranslateResponse:
    """A response without its number, its token and what depends on time."""
    copy = pb.StreamingTranslateResponse()
    copy.CopyFrom(response)
    copy.ClearField("seq")
    match copy.WhichOneof("message"):
        case "committed":
            copy.committed.ClearField("resume_token")
            for item in copy.committed.items:
                item.ClearField("elapsed_ms")
        case "end_of_utterance":
            copy.end_of_utterance.ClearField("resume_token")
        case "segment_done":
            copy.segment_done.ClearField("computation_ms")
            copy.segment_done.ClearField("queue_ms")
        case "summary":
            copy.summary.ClearField("computation_ms")
    return copy


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": policy_pb.DecisionPolicy(local_agreement=policy_pb.LocalAgreementPolicy())},
        {"commit_unit": pb.COMMIT_UNIT_TOKEN, "enable_hypotheses": True},
        {
            "endpointing": pb.Endpointing(disabled=True),
            "history_selection": pb.HistorySelection(words=4),
        },
    ],
    ids=["default", "local-agreement", "token", "endless"],
)
async def test_a_session_goes_on_at_another_replica(start: Start, changes: dict):
    """From one token or another: the rest is what it would have been, to the last count."""
    first, second = await replicas(start)
    whole = await call(first.address, messages(AUDIO, **changes))
    assert whole.code is grpc.StatusCode.OK
    assert len(points(whole)) > 5
    for count, token, acknowledged in points(whole)[::3]:
        assert 0 < len(token) <= 4096
        rest = await resume(second, token, acknowledged)
        started = rest.of("session_started")[0]
        assert started.next_sample >= acknowledged
        assert [r.seq for r in rest.responses] == [
            count + index for index in range(1, len(rest.responses) + 1)
        ]
        assert list(map(essence, rest.responses[1:])) == list(map(essence, whole.responses[count:]))


async def resume(running: RunningPolicy, token: bytes, acknowledged: int) -> Outcome:
    """Go on with a session as a client does: audio from where the server says."""
    probe = await call(running.address, [Request(config=config(resume_token=token))])
    started = probe.of("session_started")[0]
    assert started.next_sample >= acknowledged
    rest = AUDIO[started.next_sample * FRAME_BYTES :]
    return await call(running.address, messages(rest, resume_token=token))


async def test_a_log_line_tells_what_one_replica_did(start: Start, caplog):
    """Of a resumed session, no word that the one before it released."""
    caplog.set_level(logging.INFO, logger="earvoice.policy.service")
    first, second = await replicas(start)
    whole = await call(first.address, messages(AUDIO))
    _, token, acknowledged = points(whole)[-3]
    rest = await resume(second, token, acknowledged)
    told = [record for record in caplog.records if record.message == "session ended"][-1]
    assert told.words == len(rest.items) < len(whole.items)


@pytest.mark.parametrize("text", ["x", "01-" + "a" * 32 + "-" + "b" * 16 + "-00-x"])
async def test_a_long_trace_context_leaves_room_for_tokens(running: RunningPolicy, text: str):
    """Neither nonsense nor what a later version may append is passed on."""
    context = {"traceparent": text + "x" * 3900}
    outcome = await call(running.address, messages(AUDIO, trace_context=context))
    assert outcome.code is grpc.StatusCode.OK
    assert all(token for _, token, _ in points(outcome))


async def test_whoever_operates_a_replica_sees_what_went_on_there(start: Start):
    """The metric counts sessions that were resumed, not those that began."""
    port = free_port()
    first, second = await start(resume_keys=KEY), await start(resume_keys=KEY, metrics_port=port)
    whole = await call(first.address, messages(AUDIO))
    await call(second.address, messages(AUDIO))
    _, token, acknowledged = points(whole)[1]
    await resume(second, token, acknowledged)
    values = await read_values(port)
    assert values["earvoice_sessions_resumed_total"] == 2
    second.telemetry.close()


async def test_audio_that_was_decided_must_be_sent_again(running: RunningPolicy):
    """A session does not end before where it has been already."""
    whole = await call(running.address, messages(AUDIO))
    _, token, _ = points(whole)[0]
    outcome = await call(running.address, [Request(config=config(resume_token=token))])
    assert (outcome.code.name, outcome.reason) == ("FAILED_PRECONDITION", "OUT_OF_ORDER")
    assert "next_sample" in outcome.details


async def test_a_token_of_other_keys_is_refused(start: Start):
    """Without common keys a session stays where it is."""
    first, second = await start(), await start()
    whole = await call(first.address, messages(AUDIO))
    _, token, _ = points(whole)[0]
    refused = await call(second.address, messages(AUDIO, resume_token=token))
    assert (refused.code.name, refused.reason) == ("FAILED_PRECONDITION", "INVALID_RESUME_TOKEN")
    assert "resume_token" in refused.details


async def test_the_farewell_has_the_newest_token(running: RunningPolicy):
    """GoAway says with what to go elsewhere."""
    async with open_stream(running.address) as stream:
        await stream.send(*audio_messages(AUDIO[: RATE_HERTZ * 4]))
        committed = (await stream.read_until("committed")).committed
        await stream.read_until("segment_done")
        draining = asyncio.create_task(running.service.drain(20.0))
        go_away = (await stream.read_until("go_away")).go_away
        newest = stream.outcome.of("committed")[-1]
        assert go_away.resume_token == newest.resume_token != b""
        assert committed.resume_token
        await stream.end_audio()
        await stream.read_rest()
    await draining
