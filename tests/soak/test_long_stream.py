"""Long streams at full speed: the last minutes cost what the first ones did, no word is lost."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import grpc
import psutil
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
from tests.soak.recording import Clip, LongRecording, Placement, join

LONG_S = 60 * 60
NOISE_S = 10 * 60
MESSAGE_BYTES = RATE_HERTZ * 2 // 2
SEGMENTS_BETWEEN_SAMPLES = 20
# Generous: another process may take the processor, and allocators keep what they once had.
MOST_GROWTH_OF_COMPUTATION = 1.5
MOST_GROWTH_OF_MEMORY = 1.10
MEBIBYTE = 2**20
SPARE_BYTES = 20 * MEBIBYTE
SPARE_HANDLES = 3
# Utterances need not begin at the same place in each round.
LEAST_WORDS = 0.7

Tell = Callable[[str], None]

pytestmark = pytest.mark.timeout(3600)


@dataclass
class Watched:
    """A stream's outcome, and what the services held and spent while it ran."""

    outcome: Outcome = field(default_factory=Outcome)
    resident_bytes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    handles: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    threads: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: list[float] = field(default_factory=list)

    def note(self, processes: dict[str, psutil.Process]) -> None:
        """Add a sample of all services."""
        for service, process in processes.items():
            self.resident_bytes[service].append(process.memory_info().rss)
            self.handles[service].append(process.num_fds())
            self.threads[service].append(process.num_threads())
        times = [process.cpu_times() for process in processes.values()]
        self.cpu_s.append(sum(spent.user + spent.system for spent in times))


async def watch(running: Running, messages: Sequence[Request]) -> Watched:
    """Run a stream; look at the services every few segments."""
    watched, count = Watched(), 0
    processes = {service: running.process_of(service) for service in SERVICES}
    async with grpc.aio.insecure_channel(running.address) as channel:
        stub = pb_grpc.SpeechTranslationServiceStub(channel)
        try:
            async for response in stub.StreamingTranslate(messages):
                watched.outcome.responses.append(response)
                count += response.HasField("segment_done")
                if response.HasField("segment_done") and count % SEGMENTS_BETWEEN_SAMPLES == 0:
                    watched.note(processes)
        except grpc.aio.AioRpcError as error:
            note_error(watched.outcome, error)
    return watched


def thirds(values: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and the last third."""
    size = len(values) // 3
    assert size
    return statistics.median(values[:size]), statistics.median(values[-size:])


def assert_flat(watched: Watched, tell: Tell) -> None:
    """A segment's processor time and the memory are in the last third what they were at first."""
    spent_s = [after - before for before, after in itertools.pairwise(watched.cpu_s)]
    first, last = (seconds * 1000 / SEGMENTS_BETWEEN_SAMPLES for seconds in thirds(spent_s))
    tell(f"processor time a segment: {first:.1f} ms in the first third, {last:.1f} ms in the last")
    assert last <= first * MOST_GROWTH_OF_COMPUTATION + 1.0
    assert_memory_flat(watched, tell)


def assert_memory_flat(watched: Watched, tell: Tell) -> None:
    """Nothing grows."""
    for service, resident in watched.resident_bytes.items():
        first, last = thirds(resident)
        tell(f"{service}: {first / MEBIBYTE:.0f} MiB in the first third, {last / MEBIBYTE:.0f} MiB")
        assert last <= first * MOST_GROWTH_OF_MEMORY + SPARE_BYTES, service
        for name, counts in (("handles", watched.handles), ("threads", watched.threads)):
            first, last = thirds(counts[service])
            tell(f"{service}: {first:.0f} {name} in the first third, {last:.0f}")
            assert last <= first + SPARE_HANDLES, (service, name)


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
    assert all(len(texts) == 1 for texts in said.values())


async def test_an_hour_costs_no_more_at_its_end(services: Running, clips: list[Clip], tell: Tell):
    """Clips and silences, joined, EVERY_SEGMENT, every span written: flat, complete, no error."""
    recording = join(clips, LONG_S)
    watched = await watch(services, requests(recording.audio, size=MESSAGE_BYTES))
    assert_well_formed(watched.outcome)
    summary = watched.outcome.of("summary")[0]
    assert summary.audio_samples == len(recording.audio) // 2
    tell(
        f"{summary.audio_samples / RATE_HERTZ:.0f} s, {summary.word_count} words, "
        f"{summary.computation_ms / 1000:.0f} s of computation"
    )
    assert_complete(watched.outcome, recording, tell)
    assert_repeatable(watched.outcome, recording, tell)
    assert_flat(watched, tell)


async def test_ten_minutes_of_noise_are_survived(services: Running, tell: Tell):
    """Utterances are cut, nothing loops, nothing grows, and the next stream is whole."""
    loud = requests(noise(NOISE_S, level=0.3), size=MESSAGE_BYTES)
    watched = await watch(services, loud)
    assert_well_formed(watched.outcome)
    summary = watched.outcome.of("summary")[0]
    tell(f"{summary.word_count} words from noise; guards: {dict(summary.guards_hit)}")
    ends = watched.outcome.of("end_of_utterance")
    assert max(end.end_sample - end.start_sample for end in ends) <= 20 * RATE_HERTZ
    assert_flat(watched, tell)


async def test_a_hundred_sessions_leave_nothing_behind(
    services: Running, clips: list[Clip], tell: Tell
):
    """Sessions one after the other: the memory of the last third is that of the first."""
    shortest = min(clips, key=lambda clip: len(clip.samples))
    messages = requests(shortest.samples.tobytes(), size=MESSAGE_BYTES)
    processes = {service: services.process_of(service) for service in SERVICES}
    watched = Watched()
    texts = []
    async for outcome in sessions(services.address, messages, 100):
        assert_well_formed(outcome)
        texts.append(outcome.text)
        watched.note(processes)
    assert all(text == texts[0] for text in texts)
    assert_memory_flat(watched, tell)


async def sessions(address: str, messages: Sequence[Request], count: int) -> AsyncIterator[Outcome]:
    """The same stream again and again."""
    for _ in range(count):
        yield await call(address, messages)
