"""Long streams at full speed: the last minutes cost what the first ones did, no word is lost."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as pb_grpc
from tests.e2e.calling import (
    RATE_HERTZ,
    Outcome,
    Request,
    assert_well_formed,
    call,
    noise,
    note_error,
    requests,
)
from tests.e2e.running import SERVICES, Running
from tests.soak.growth import Growth, Tell
from tests.soak.recording import Clip, LongRecording, Placement, join

LONG_S = int(os.environ.get("EARVOICE_SOAK_S", "3600"))
NOISE_S = 10 * 60
REPEATED_S = 10 * 60
MESSAGE_BYTES = RATE_HERTZ * 2 // 2
SEGMENTS_BETWEEN_SAMPLES = 20
# Utterances need not begin at the same place in each round.
LEAST_WORDS = 0.7

pytestmark = pytest.mark.timeout(3600)


async def watch(running: Running, messages: Sequence[Request]) -> tuple[Outcome, Growth]:
    """Run a stream; look at the services every few segments."""
    outcome, growth, count = Outcome(), Growth(), 0
    processes = {service: running.process_of(service) for service in SERVICES}
    async with grpc.aio.insecure_channel(running.address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        try:
            async for response in stub.StreamingTranslate(messages):
                outcome.responses.append(response)
                count += response.HasField("segment_done")
                if response.HasField("segment_done") and count % SEGMENTS_BETWEEN_SAMPLES == 0:
                    growth.note(processes)
        except grpc.aio.AioRpcError as error:
            note_error(outcome, error)
    return outcome, growth


def assert_complete(outcome: Outcome, recording: LongRecording, tell: Tell) -> None:
    """Every clip lies in utterances that give words, in the last rounds as in the first ones."""
    ends = outcome.of("end_of_utterance")
    counts = Counter(item.utterance for item in outcome.items)
    silent = [
        (place.name, place.start_sample // RATE_HERTZ)
        for place in recording.placements
        if not any(counts[end.utterance] for end in ends if overlap(place, end))
    ]
    assert silent == []
    third = len(recording.audio) // 2 // 3
    first = sum(item.delay_samples <= third for item in outcome.items)
    last = sum(item.delay_samples > 2 * third for item in outcome.items)
    tell(f"{first} items in the first third, {last} in the last")
    assert first * LEAST_WORDS <= last


def overlap(place: Placement, end: pb.EndOfUtterance) -> bool:
    """Whether a clip and an utterance share audio."""
    return place.start_sample < end.end_sample and end.start_sample < place.end_sample


def assert_repeatable(outcome: Outcome, recording: LongRecording, tell: Tell) -> None:
    """The same stretch of a round gives the same words whenever it comes."""
    words, said, repeats = defaultdict(list), defaultdict(set), 0
    for item in outcome.items:
        words[item.utterance].append(item.text)
    for end in outcome.of("end_of_utterance"):
        stretch = (end.start_sample % recording.round_samples, end.end_sample - end.start_sample)
        repeats += stretch in said
        said[stretch].add(tuple(words[end.utterance]))
    tell(f"{repeats} of {len(words)} utterances with words are the repeat of an earlier one")
    assert repeats
    assert all(len(texts) == 1 for texts in said.values())


async def test_an_hour_costs_no_more_at_its_end(services: Running, clips: list[Clip], tell: Tell):
    """Clips and silences, joined, EVERY_SEGMENT, every span written: flat, complete, no error."""
    recording = join(clips, LONG_S)
    outcome, growth = await watch(services, requests(recording.audio, size=MESSAGE_BYTES))
    assert_well_formed(outcome)
    summary = outcome.of("summary")[0]
    assert summary.audio_samples == len(recording.audio) // 2
    tell(
        f"{summary.audio_samples / RATE_HERTZ:.0f} s, {summary.word_count} words, "
        f"{summary.computation_ms / 1000:.0f} s of computation"
    )
    assert_complete(outcome, recording, tell)
    growth.assert_cost_is_flat(SEGMENTS_BETWEEN_SAMPLES, tell)
    growth.assert_nothing_is_held(tell)


async def test_the_same_stretch_says_the_same(services: Running, clips: list[Clip], tell: Tell):
    """Short rounds, many of them: utterances come to begin where earlier ones did."""
    shortest = sorted(clips, key=lambda clip: len(clip.samples))[:2]
    recording = join(shortest, min(LONG_S, REPEATED_S))
    outcome = await call(services.address, requests(recording.audio, size=MESSAGE_BYTES))
    assert_well_formed(outcome)
    assert_repeatable(outcome, recording, tell)


async def test_ten_minutes_of_noise_are_survived(services: Running, tell: Tell):
    """Utterances are cut, nothing loops, nothing grows, and the next stream is whole."""
    loud = requests(noise(NOISE_S, level=0.3), size=MESSAGE_BYTES)
    outcome, growth = await watch(services, loud)
    assert_well_formed(outcome)
    summary = outcome.of("summary")[0]
    tell(f"{summary.word_count} words from noise; guards: {dict(summary.guards_hit)}")
    ends = outcome.of("end_of_utterance")
    assert max(end.end_sample - end.start_sample for end in ends) <= 20 * RATE_HERTZ
    growth.assert_cost_is_flat(SEGMENTS_BETWEEN_SAMPLES, tell)
    growth.assert_nothing_is_held(tell)


async def test_a_hundred_sessions_leave_nothing_behind(
    services: Running, clips: list[Clip], tell: Tell
):
    """Sessions one after the other: the memory of the last third is that of the first."""
    shortest = min(clips, key=lambda clip: len(clip.samples))
    messages = requests(shortest.samples.tobytes(), size=MESSAGE_BYTES)
    processes = {service: services.process_of(service) for service in SERVICES}
    growth = Growth()
    texts = []
    async for outcome in sessions(services.address, messages, 100):
        assert_well_formed(outcome)
        texts.append(outcome.text)
        growth.note(processes)
    assert all(text == texts[0] for text in texts)
    growth.assert_nothing_is_held(tell)


async def sessions(address: str, messages: Sequence[Request], count: int) -> AsyncIterator[Outcome]:
    """The same stream again and again."""
    for _ in range(count):
        yield await call(address, messages)
