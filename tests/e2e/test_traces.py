"""The spans of three real services over real recordings: whole trees, and numbers that add up."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.evaluation.metrics import average_lagging, mean_word_lag
from earvoice.latency.session_report import Record, report_session
from earvoice.latency.span import TraceStore, read_span_file
from earvoice.latency.traced_session import join_traces
from earvoice.telemetry.schema import SPANS, STAGES
from tests.e2e.calling import Outcome, call, paced, released_words, requests, speech
from tests.e2e.running import SERVICES, Running, start
from tests.soak.recording import read_clips

pytestmark = pytest.mark.torch

RATE = 16
"""Samples of a millisecond."""
RUNS = {
    "true": {"catch_up": pb.CATCH_UP_EVERY_SEGMENT},
    "live": {"catch_up": pb.CATCH_UP_MERGE},
    "held": {"catch_up": pb.CATCH_UP_MERGE, "commit_unit": pb.COMMIT_UNIT_TOKEN},
}
CHILDREN = {
    "encode": {"encoder.queue", "encoder.compute"},
    "decode": {"decoder.queue", "decoder.prefill", "decoder.steps"},
}

Json = Mapping[str, object]


@dataclass(frozen=True)
class Traced:
    """What the services wrote, and what their clients saw, by session."""

    files: list[Path]
    outcomes: Mapping[str, Outcome]

    def spans(self) -> Iterator[Json]:
        """Every span, with its attributes as a dictionary of texts."""
        for path in self.files:
            for line in path.read_text().splitlines():
                for resource in json.loads(line)["resourceSpans"]:
                    yield from resource["scopeSpans"][0]["spans"]


async def translate(running: Running, audio: bytes) -> dict[str, Outcome]:
    outcomes = {}
    for changes in RUNS.values():
        send = paced if changes["catch_up"] == pb.CATCH_UP_MERGE else requests
        messages = send(audio, enable_stage_timings=True, **changes)
        outcome = await call(running.address, messages)
        outcomes[outcome.of("session_started")[0].session_id] = outcome
    return outcomes


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> Traced:
    files, running = start_traced(tmp_path_factory.mktemp("traced"))
    outcomes = asyncio.run(translate(running, speech()))
    assert running.stop() == 0
    return Traced(files, outcomes)


@pytest.fixture(scope="module")
def traced_clips(tmp_path_factory, samples: Path) -> Traced:
    """Real recordings, all live at once."""
    clips = read_clips([samples])
    folder = tmp_path_factory.mktemp("clips")
    files, running = start_traced(folder)

    async def translate_all() -> list[Outcome]:
        return await asyncio.gather(
            *(
                call(
                    running.address,
                    paced(clip.samples.tobytes(), enable_stage_timings=True, **RUNS["live"]),
                )
                for clip in clips
            )
        )

    outcomes = asyncio.run(translate_all())
    assert running.stop() == 0
    by_session = {outcome.of("session_started")[0].session_id: outcome for outcome in outcomes}
    return Traced(files, by_session)


def start_traced(folder: Path) -> tuple[list[Path], Running]:
    """Start services with trace files: what they hold back is written when they stop."""
    files = {service: folder / f"{service}.jsonl" for service in SERVICES}
    settings = {f"EARVOICE_{s.upper()}_TRACE_FILE": str(path) for s, path in files.items()}
    return list(files.values()), start(folder, **settings)


@pytest.fixture(scope="module")
def reports(traced: Traced) -> Mapping[str, Record]:
    """Read as `earvoice latency` does."""
    store = TraceStore()
    for path in traced.files:
        store.take(read_span_file(path))
    sessions, problems = join_traces(store)
    assert not problems
    return {session.id: report_session(session) for session in sessions}


def test_the_spans_of_three_services_join_into_whole_trees(traced: Traced):
    """Every parent is there, every call has what the other service did, every segment a session."""
    spans = list(traced.spans())
    by_id = {span["spanId"]: span for span in spans}
    assert len(by_id) == len(spans)
    children = defaultdict(set)
    for span in spans:
        if "parentSpanId" in span:
            parent = by_id[span["parentSpanId"]]
            assert parent["traceId"] == span["traceId"]
            children[parent["spanId"]].add(span["name"])
    for span in spans:
        assert children[span["spanId"]] >= CHILDREN.get(span["name"], set())
        if span["name"] == "segment":
            assert by_id[span["links"][0]["spanId"]]["name"] == "session"
    segments = sum(len(outcome.of("segment_done")) for outcome in traced.outcomes.values())
    counts = Counter(span["name"] for span in spans)
    assert counts["segment"] == counts["encode"] == segments
    assert counts["session"] == len(traced.outcomes)
    assert set(counts) == {span.name for span in SPANS if span.service in SERVICES}


def test_every_attribute_is_declared(traced: Traced):
    """Of all three services."""
    declared = {span.name: {item.name for item in span.attributes} for span in SPANS}
    for span in traced.spans():
        assert {item["key"] for item in span["attributes"]} <= declared[span["name"]]


def test_every_words_stages_add_up_to_its_lag(traced: Traced):
    """To a millisecond, from what the spans say alone, and from what the client is told."""
    assert_adds_up(traced)


def test_every_words_stages_add_up_over_real_recordings(traced_clips: Traced):
    """Whatever speaks, with ends of utterances and merged segments."""
    assert_adds_up(traced_clips)


def assert_adds_up(traced: Traced) -> None:
    """For every word of every session."""
    checked = 0
    for outcome in traced.outcomes.values():
        for item in outcome.items:
            told = item.stage_timings
            parts = sum(getattr(told, f"{stage}_ms") for stage in STAGES) + told.word_hold_ms
            assert parts == pytest.approx(told.total_ms, abs=1)
    segments, emits = {}, {}
    for span in traced.spans():
        values = {
            item["key"].removeprefix("earvoice."): item["value"] for item in span["attributes"]
        }
        if span["name"] == "segment":
            segments[span["traceId"]] = values
        if span["name"] == "emit":
            emits[span["traceId"]] = values
    places = {place_of(segments[trace]): trace for trace in emits}
    for trace, emit in emits.items():
        words = zip(
            numbers(emit, "words.elapsed_ms"),
            numbers(emit, "words.source_end_ms"),
            numbers(emit, "words.hold_ms"),
            (item["intValue"] for item in emit["words.commit_segment"]["arrayValue"]["values"]),
            strict=True,
        )
        for elapsed_ms, source_end_ms, hold_ms, commit_segment in words:
            own = places[*place_of(segments[trace])[:2], commit_segment]
            stages_ms = sum(number(emits[own], f"stage.{stage}_ms") for stage in STAGES)
            wait_ms = number(segments[own], "segment.grid_end_ms") - source_end_ms
            late_ms = number(segments[own], "segment.arrival_lateness_ms")
            lag_ms = elapsed_ms - source_end_ms
            assert wait_ms + late_ms + stages_ms + hold_ms == pytest.approx(lag_ms, abs=1)
            checked += 1
    assert checked == sum(len(outcome.items) for outcome in traced.outcomes.values())


def place_of(segment: Mapping[str, Json]) -> tuple[str, str, str]:
    session = segment["session.id"]["stringValue"]
    return session, segment["utterance.index"]["intValue"], segment["segment.index"]["intValue"]


def number(values: Mapping[str, Json], name: str) -> float:
    return float(values[name]["doubleValue"])


def numbers(values: Mapping[str, Json], name: str) -> list[float]:
    return [float(item["doubleValue"]) for item in values[name]["arrayValue"]["values"]]


@pytest.mark.parametrize("clock", ["ideal", "own"])
def test_the_traces_say_what_the_log_of_the_session_says(
    traced: Traced, reports: Mapping[str, Record], clock: str
):
    """Word lag and LAAL* to one part in a hundred, on both clocks."""
    for session_id, outcome in traced.outcomes.items():
        report = reports[session_id]
        told = "ideal" if clock == "ideal" else report["clock"]
        words = released_words(outcome.items)
        times_ms = [
            item.delay_samples / RATE if clock == "ideal" else item.elapsed_ms for item in words
        ]
        ends_ms = [item.source_end_sample / RATE for item in words]
        assert report["word_lag_ms"][told]["mean"] == pytest.approx(
            mean_word_lag(times_ms, ends_ms), rel=0.01
        )
        (utterance,) = outcome.of("end_of_utterance")
        expected_ms = average_lagging(times_ms, utterance.end_sample / RATE, len(times_ms))
        assert report["laal_star_ms"][told] == pytest.approx(expected_ms, rel=0.01)


def test_no_moment_of_one_process_is_compared_with_anothers(traced: Traced):
    """Wall clocks that are minutes apart move no number of the report."""
    shifts_ns = dict(zip(traced.files, (0, 90 * 10**9, -(10**12)), strict=True))
    plain, shifted = TraceStore(), TraceStore()
    for path, shift_ns in shifts_ns.items():
        moved = path.with_suffix(".moved")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]:
                for end in ("startTimeUnixNano", "endTimeUnixNano"):
                    span[end] = str(int(span[end]) + shift_ns)
        moved.write_text("".join(json.dumps(line) + "\n" for line in lines))
        plain.take(read_span_file(path))
        shifted.take(read_span_file(moved))
    for one, other in zip(join_traces(plain)[0], join_traces(shifted)[0], strict=True):
        first, second = report_session(one), report_session(other)
        for numbers_of in ("word_lag_ms", "laal_star_ms", "stages", "segment_computation_ms"):
            assert first[numbers_of] == second[numbers_of]
