"""Every policy through three processes with the shipped model: chosen, switched, without end."""

from __future__ import annotations

import itertools

import grpc
import pytest
import soundfile

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.policy.wire.config import milliseconds
from tests.e2e.calling import (
    RATE_HERTZ,
    Request,
    assert_well_formed,
    call,
    config,
    pieces,
    requests,
    speech,
)

POLICIES = {
    "edatt": policy_pb.DecisionPolicy(edatt={"attention_heads": [1, 3]}),
    "align_att": policy_pb.DecisionPolicy(align_att={}),
    "local_agreement": policy_pb.DecisionPolicy(local_agreement={}),
    "shared_prefix": policy_pb.DecisionPolicy(shared_prefix={}),
    "hold_n": policy_pb.DecisionPolicy(hold_n={}),
    "wait_k": policy_pb.DecisionPolicy(wait_k={}),
    "wait_k_adaptive": policy_pb.DecisionPolicy(
        wait_k={"k": 5, "detection": policy_pb.WORD_DETECTION_ADAPTIVE}
    ),
    "strided_wait_k": policy_pb.DecisionPolicy(strided_wait_k={}),
    "frame_schedule": policy_pb.DecisionPolicy(
        frame_schedule={"wait_frames": 100, "stride_frames": 50, "tokens": 2}
    ),
    "offline": policy_pb.DecisionPolicy(offline={}),
}


@pytest.mark.parametrize("name", POLICIES)
async def test_every_policy_translates_the_whole_recording(services, name: str):
    """Each says something, only the offline one waits for the end, and the config names it."""
    outcome = await call(services.address, requests(speech(), policy=POLICIES[name]))
    assert_well_formed(outcome)
    delays = [item.delay_samples for item in outcome.items]
    assert (delays[0] < len(speech()) // 2) == (name != "offline")
    effective = outcome.of("session_started")[0].config
    assert effective.policy.WhichOneof("policy") == POLICIES[name].WhichOneof("policy")


@pytest.mark.parametrize("name", ["edatt", "align_att"])
async def test_policies_that_read_attention_take_a_beam(services, name: str):
    """Attention is the best hypothesis's."""
    changes = {"policy": POLICIES[name], "beam_size": 2}
    outcome = await call(services.address, requests(speech(), **changes))
    assert_well_formed(outcome)
    assert outcome.items[0].delay_samples < len(speech()) // 2


def switching_requests(size: int) -> list[Request]:
    """Four recordings on end, another policy every three seconds and a half, 10 in all."""
    stretch_bytes = 7 * RATE_HERTZ
    audio = speech() * 4
    messages = [Request(config=config(policy=POLICIES["edatt"]))]
    for number, name in enumerate(POLICIES):
        if number:
            update = pb.StreamingUpdate(
                policy=POLICIES[name],
                # A policy that dictates its segments leaves them to the next.
                segment_duration=None if name == "frame_schedule" else milliseconds(800),
                beam_size=5 if name == "shared_prefix" else 1,
            )
            messages.append(Request(update=update))
        last = number == len(POLICIES) - 1
        end = len(audio) if last else (number + 1) * stretch_bytes
        stretch = audio[number * stretch_bytes : end]
        messages += [Request(audio=piece) for piece in pieces(stretch, size)]
    return messages


@pytest.mark.timeout(1800)
async def test_a_stream_goes_through_every_policy(services):
    """Words come under each, none is taken back, and the text does not depend on the messages."""
    outcome = await call(services.address, switching_requests(3200))
    assert_well_formed(outcome)
    ends_ms = [done.end_sample * 1000 // RATE_HERTZ for done in outcome.of("segment_done")]
    steps_ms = {later - earlier for earlier, later in itertools.pairwise(ends_ms)}
    assert {500, 800} <= steps_ms
    once = await call(services.address, requests(speech()))
    assert len(outcome.items) > 4 * len(once.items) / 2
    assert (await call(services.address, switching_requests(50_000))).text == outcome.text


async def test_a_bad_update_ends_the_session_by_its_own_field(services):
    """Heads that the model does not have are refused before the decoder is asked."""
    wrong = policy_pb.DecisionPolicy(edatt={"attention_heads": [99]})
    messages = requests(speech())
    messages.append(Request(update=pb.StreamingUpdate(policy=wrong)))
    messages += [Request(audio=piece) for piece in pieces(speech())]
    outcome = await call(services.address, messages)
    assert (outcome.code, outcome.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert "policy.edatt.attention_heads" in outcome.details
    assert "from 1 to 6" in outcome.details


@pytest.mark.parametrize("name", ["align_att", "local_agreement"])
async def test_speech_without_end_is_one_utterance(services, name: str):
    """Longer than an encoder takes at once: history selection forgets, and words go on coming."""
    audio = speech() * 6
    changes = {
        "policy": POLICIES[name],
        "endpointing": pb.Endpointing(disabled=True),
        "history_selection": pb.HistorySelection(words=8),
    }
    outcome = await call(services.address, requests(audio, 64_000, **changes))
    assert_well_formed(outcome)
    assert outcome.of("summary")[0].audio_samples == len(audio) // 2
    kept_s = [
        (committed.items[0].delay_samples - committed.acknowledged_samples) / RATE_HERTZ
        for committed in outcome.of("committed")
    ]
    assert max(kept_s) < 40
    sixths = {item.delay_samples * 6 // (len(audio) // 2) for item in outcome.items}
    assert {1, 2, 3, 4, 5} <= sixths


async def test_a_loop_does_not_swallow_what_follows(services, samples):
    """A call in which the shipped model repeats itself half way: words come to its end."""
    path = samples / "google_commercial_mono.wav"
    frames, rate = soundfile.read(path, dtype="int16", always_2d=True)
    changes = {
        "sample_rate_hertz": rate,
        "policy": POLICIES["align_att"],
        "endpointing": pb.Endpointing(disabled=True),
        "history_selection": pb.HistorySelection(words=8),
    }
    outcome = await call(services.address, requests(frames.tobytes(), 64_000, **changes))
    assert_well_formed(outcome)
    delays = [0, *(item.delay_samples / rate for item in outcome.items)]
    assert max(later - earlier for earlier, later in itertools.pairwise(delays)) < 10
    assert delays[-1] > len(frames) / rate - 10
