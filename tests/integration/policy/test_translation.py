"""The policy service over gRPC: what is asked for comes, in order, and is asked of the backends."""

from __future__ import annotations

import itertools

import grpc
import pytest

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.policy.wire.config import milliseconds
from tests.e2e.calling import Request, assert_well_formed, call, config, pieces
from tests.integration.policy.conftest import RunningPolicy
from tests.integration.policy.scripted_backends import RATE_HERTZ


def seconds(count: float) -> bytes:
    return bytes(int(count * RATE_HERTZ) * 2)


def stream(*messages: bytes | pb.StreamingUpdate, **changes) -> list[Request]:
    return [Request(config=config(**changes))] + [
        Request(audio=message) if isinstance(message, bytes) else Request(update=message)
        for message in messages
    ]


def policy(**choice) -> policy_pb.DecisionPolicy:
    return policy_pb.DecisionPolicy(**choice)


def ends_ms(outcome) -> list[int]:
    return [done.end_sample * 1000 // RATE_HERTZ for done in outcome.of("segment_done")]


async def test_words_come_in_order_between_start_and_summary(running: RunningPolicy):
    """Each segment tells its words first, then that it is done."""
    outcome = await call(running.address, stream(*pieces(seconds(4.0))))
    assert_well_formed(outcome)
    assert [item.text for item in outcome.items] == [f"w{n}" for n in range(13)]
    assert ends_ms(outcome) == [800, 1600, 2400, 3200, 4000, 4000]


@pytest.mark.parametrize(
    ("choice", "beam_size"),
    [
        (policy(edatt={"alpha": 0.3}), 1),
        (policy(align_att={"frames": 4}), 1),
        (policy(align_att={"frames": 4}), 4),
        (policy(local_agreement={"n": 3}), 1),
        (policy(shared_prefix={"n": 1}), 5),
        (policy(shared_prefix={"n": 2}), 5),
        (policy(wait_k={"k": 2, "detection": "WORD_DETECTION_ADAPTIVE"}), 1),
        (policy(strided_wait_k={"k": 2, "stride_ms": 320}), 1),
        (policy(frame_schedule={"wait_frames": 100, "stride_frames": 40, "tokens": 1}), 1),
        (policy(hold_n={"n": 2}), 1),
        (policy(offline={}), 1),
    ],
    ids=lambda value: value.WhichOneof("policy") if not isinstance(value, int) else str(value),
)
async def test_every_policy_says_every_word_once(running: RunningPolicy, choice, beam_size):
    """Through every service, with the beam that it needs; the effective config asks for it."""
    requested = {"policy": choice} | ({"beam_size": beam_size} if beam_size == 4 else {})
    outcome = await call(running.address, stream(seconds(4.0), **requested))
    assert_well_formed(outcome)
    assert [item.text for item in outcome.items] == [f"w{n}" for n in range(13)]
    assert {request.beam_size for request in running.decoder.requests} == {beam_size}
    effective = outcome.of("session_started")[0].config
    assert effective.beam_size == beam_size
    assert effective.policy.WhichOneof("policy") == choice.WhichOneof("policy")


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_encoder_may_rest_in_silence_where_guards_look(
    running: RunningPolicy, guarded: bool
):
    """Without guards a policy wants states even where nobody was heard."""
    await call(running.address, stream(seconds(1.0), disable_guards=not guarded))
    (opening,) = running.encoder.openings
    assert opening.skip_silence is guarded
    # Whether or not the client wants it: guards and confidence read it.
    assert opening.enable_source_transcript


async def test_the_heads_of_the_policy_are_read(running: RunningPolicy):
    """Layer and heads stand in every generation."""
    edatt = {"attention_layer": 3, "attention_heads": [2, 4]}
    await call(running.address, stream(seconds(2.0), policy=policy(edatt=edatt)))
    chosen = {
        (request.attention_layer, tuple(request.attention_heads))
        for request in running.decoder.requests
    }
    assert chosen == {(3, (2, 4))}


async def test_an_update_takes_its_place_in_the_audio(running: RunningPolicy):
    """Policy, beam and segments change with the first segment that ends behind it."""
    update = pb.StreamingUpdate(
        policy=policy(shared_prefix={}), segment_duration=milliseconds(400), beam_size=3
    )
    outcome = await call(running.address, stream(seconds(2.0), update, seconds(1.0)))
    assert_well_formed(outcome)
    # The boundary at 2000 ms is where the update came, not behind it.
    assert ends_ms(outcome) == [800, 1600, 2400, 2800, 3000]
    assert [request.beam_size for request in running.decoder.requests] == [1, 1, 3, 3, 3]


@pytest.mark.parametrize("size", [1280, 6400, 40_000])
async def test_the_text_does_not_depend_on_how_audio_is_cut(running: RunningPolicy, size: int):
    """It is a function of the samples and of the updates' places among them."""
    updates = [
        pb.StreamingUpdate(policy=policy(local_agreement={})),
        pb.StreamingUpdate(policy=policy(edatt={}), segment_duration=milliseconds(500)),
    ]
    parts = [seconds(1.2), seconds(2.4), seconds(2.0)]

    def messages(length: int) -> list[bytes | pb.StreamingUpdate]:
        cut = [pieces(part, length) for part in parts]
        return [*cut[0], updates[0], *cut[1], updates[1], *cut[2]]

    whole = await call(running.address, stream(*messages(10**6)))
    outcome = await call(running.address, stream(*messages(size)))
    assert outcome.text == whole.text
    assert ends_ms(outcome) == ends_ms(whole)


@pytest.mark.parametrize("target_ms", [1500, 3000])
@pytest.mark.parametrize("name", ["align_att", "local_agreement"])
async def test_the_lag_asked_for_is_held(running: RunningPolicy, name: str, target_ms: int):
    """Mean over a minute of one utterance, within a fifth; the config tells what was asked for."""
    outcome = await call(
        running.address,
        stream(
            *pieces(seconds(60), 64_000),
            policy=policy(**{name: {}}),
            target_lag=milliseconds(target_ms),
            endpointing=pb.Endpointing(disabled=True),
            history_selection=pb.HistorySelection(words=4),
        ),
    )
    assert_well_formed(outcome)
    lags = [item.delay_samples - item.source_end_sample for item in outcome.items]
    mean_ms = sum(lags) * 1000 / RATE_HERTZ / len(lags)
    assert mean_ms == pytest.approx(target_ms, rel=0.2)
    effective = outcome.of("session_started")[0].config
    assert effective.target_lag == milliseconds(target_ms)


async def test_a_bad_update_ends_the_session_behind_its_words(running: RunningPolicy):
    """The field is named; every segment that ends before it is decided, none after it."""
    bad = pb.StreamingUpdate(policy=policy(edatt={"alpha": 7}))
    outcome = await call(running.address, stream(seconds(4.2), bad, seconds(1.0)))
    assert outcome.code is grpc.StatusCode.INVALID_ARGUMENT
    assert outcome.reason == "INVALID_FIELD"
    assert "policy.edatt.alpha = 7" in outcome.details
    assert ends_ms(outcome) == [800, 1600, 2400, 3200, 4000]
    texts = [item.text for item in outcome.items]
    assert texts == [f"w{n}" for n in range(len(texts))]


async def test_hypotheses_are_told_when_asked_for(running: RunningPolicy):
    """Each starts with the prefix that was committed so far."""
    asked = stream(seconds(4.0), enable_hypotheses=True, commit_unit=pb.COMMIT_UNIT_TOKEN)
    segments = (await call(running.address, asked)).of("segment_done")
    assert all(segment.hypothesis_tokens for segment in segments)
    for earlier, later in itertools.pairwise(segments):
        count = earlier.prefix_token_count + earlier.committed_token_count
        assert later.prefix_token_count == count
        assert later.hypothesis_tokens[:count] == earlier.hypothesis_tokens[:count]
    assert running.decoder.halted_count == 0
    silent = (await call(running.address, stream(seconds(4.0)))).of("segment_done")
    assert not any(segment.hypothesis_tokens for segment in silent)


@pytest.mark.parametrize("beam_size", [1, 3])
async def test_an_endless_utterance_costs_no_more_with_time(running: RunningPolicy, beam_size):
    """Endpointing off, a minute without a pause: far past what an encoder may hold otherwise."""
    outcome = await call(
        running.address,
        stream(
            *pieces(seconds(60), 64_000),
            beam_size=beam_size,
            endpointing=pb.Endpointing(disabled=True),
            history_selection=pb.HistorySelection(words=4),
        ),
    )
    assert_well_formed(outcome)
    assert len(outcome.of("end_of_utterance")) == 1
    texts = [item.text for item in outcome.items]
    assert texts == [f"w{n}" for n in range(len(texts))]
    assert len(texts) > 180
    assert running.encoder.max_state_count < 60
    assert {command[1] for command in running.encoder.commands if command[0] == "reset"} == {0}
