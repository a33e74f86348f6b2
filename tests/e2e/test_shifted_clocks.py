"""Hosts whose wall clocks disagree: no number compares one with another."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.evaluation.metrics import mean_word_lag
from earvoice.latency.session_report import Record, report_session
from earvoice.latency.span import TraceStore, read_span_file
from earvoice.latency.traced_session import join_traces
from earvoice.telemetry.schema import STAGES
from tests.e2e.calling import Outcome, call, paced, released_words, speech
from tests.e2e.running import service_yard
from tests.faults.cluster import FAKETIME

pytestmark = pytest.mark.torch

SHIFTS_S = {"policy": 0, "encoder": 90, "decoder": -1000}
SAMPLES_PER_MS = 16


def environment(shift_s: int) -> dict[str, str]:
    """What makes a process read another wall clock, and the same monotonic one."""
    if not shift_s:
        return {}
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME": f"{shift_s:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def first_start_s(path: Path) -> float:
    """When the first span of a file began, by its writer's wall clock."""
    line = json.loads(path.read_text().splitlines()[0])
    return int(line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["startTimeUnixNano"]) / 1e9


def report_of(files: list[Path]) -> Record:
    """Read as `earvoice latency` does."""
    store = TraceStore()
    for path in files:
        store.take(read_span_file(path))
    (session,) = join_traces(store)[0]
    return report_session(session)


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not here: make test-tools installs it")
def test_wall_clocks_that_disagree_move_no_number(tmp_path: Path):
    """The encoder is ahead by 90 s, the decoder behind by 1000 s; lag and stages stay."""
    files = {service: tmp_path / f"{service}.jsonl" for service in SHIFTS_S}
    with service_yard(tmp_path / "yard") as yard:
        backends = {
            service: yard.start(
                service, environment=environment(SHIFTS_S[service]), TRACE_FILE=str(files[service])
            )
            for service in ("encoder", "decoder")
        }
        targets = {f"{s.upper()}_TARGET": backend.address() for s, backend in backends.items()}
        policy = yard.start("policy", TRACE_FILE=str(files["policy"]), **targets)
        stream = paced(speech(), enable_stage_timings=True, catch_up=pb.CATCH_UP_MERGE)
        outcome: Outcome = asyncio.run(call(policy.address(), stream))
    starts_s = {service: first_start_s(path) for service, path in files.items()}
    for service in backends:
        shift_s = starts_s[service] - starts_s["policy"]
        assert shift_s == pytest.approx(SHIFTS_S[service], abs=60)
    assert outcome.items
    for item in outcome.items:
        stages = [getattr(item.stage_timings, f"{stage}_ms") for stage in STAGES]
        assert min(stages) > -1
        assert max(stages) < 60_000
        assert sum(stages) == pytest.approx(item.stage_timings.total_ms, abs=1)
    report = report_of(list(files.values()))
    words = released_words(outcome.items)
    told_ms = mean_word_lag(
        [item.elapsed_ms for item in words],
        [item.source_end_sample / SAMPLES_PER_MS for item in words],
    )
    assert report["word_lag_ms"][report["clock"]]["mean"] == pytest.approx(told_ms, rel=0.01)
