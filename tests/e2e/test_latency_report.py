"""`earvoice latency` says of real spans what the client was told, and what the log's score says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import SERVICES, Running, start
from tests.e2e.test_evaluate import RECORDING, output_of, whole_words

pytestmark = pytest.mark.torch

# Both round to thousandths.
ROUNDING_MS = 0.002
PACES = {"true": "--fast", "live": "--realtime"}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A session of each pace: what the client got, its score, and what the spans tell."""
    folder = tmp_path_factory.mktemp("traced")
    files = {service: folder / f"{service}.jsonl" for service in SERVICES}
    running = start(
        folder, **{f"EARVOICE_{name.upper()}_TRACE_FILE": str(path) for name, path in files.items()}
    )
    items, scores = {}, {}
    for clock, pace in PACES.items():
        log = folder / f"{clock}.jsonl.log"
        log.write_text(translate(running, pace), encoding="utf8")
        lines = map(json.loads, log.read_text(encoding="utf8").splitlines())
        items[clock] = whole_words([line for line in lines if "text" in line])
        scores[clock] = json.loads(output_of("score", log, "--format", "json"))
    assert running.stop() == 0
    report = json.loads(output_of("latency", *files.values(), "--format", "json"))
    assert report["problems"] == []
    sessions = {session["clock"]: session for session in report["sessions"]}
    return {clock: (items[clock], scores[clock], sessions[clock]) for clock in PACES}


def translate(running: Running, pace: str) -> str:
    target = ("--server", running.address, "--to", "de", pace)
    options = ("--format", "jsonl", "--stage-timings", "--transcript")
    return output_of("translate", RECORDING, *target, *options)


@pytest.mark.parametrize("clock", PACES)
def test_the_spans_have_the_words_of_the_client(traced, clock: str):
    """Delay, time and source interval of each, and every stage."""
    items, _, session = traced[clock]
    assert len(session["words"]) == len(items) > 10
    for item, word in zip(items, session["words"], strict=True):
        for name in ("delay_ms", "elapsed_ms", "source_end_ms"):
            assert word[name] == pytest.approx(item[name], abs=ROUNDING_MS)
        told = item["stage_timings"]
        for stage, time_ms in word["stages"].items():
            if stage not in ("audio_wait", "arrival_lateness"):
                assert time_ms == pytest.approx(told[f"{stage}_ms"], abs=ROUNDING_MS)


@pytest.mark.parametrize("clock", PACES)
def test_the_stages_add_up_to_the_lag(traced, clock: str):
    """And what is left for audio is a whole wait for the segment's end, on its own grid."""
    _, _, session = traced[clock]
    ends_ms = {(s["utterance"], s["segment"]): s["end_ms"] for s in session["segments"]}
    for word in session["words"]:
        lag_ms = word["elapsed_ms"] - word["source_end_ms"]
        assert sum(word["stages"].values()) == pytest.approx(lag_ms, abs=0.02)
        merged_ms = word["stages"]["merge_wait"]
        waited_ms = ends_ms[word["utterance"], word["segment"]] - word["source_end_ms"]
        assert merged_ms or word["stages"]["audio_wait"] == pytest.approx(waited_ms, abs=1)


@pytest.mark.parametrize("clock", PACES)
def test_laal_star_and_lag_are_those_of_the_log(traced, clock: str):
    """`earvoice score` reads the client's log of the same session."""
    _, score, session = traced[clock]
    told = score["score"]["rows"]
    for name in ("ideal", clock):
        lag_ms = session["word_lag_ms"][name]["mean"]
        assert lag_ms == pytest.approx(told["word lag"][name]["value"], rel=0.01)
        laal_star_ms = session["laal_star_ms"][name]
        assert laal_star_ms == pytest.approx(told["LAAL*"][name]["value"], rel=0.01)


def test_the_demo_writes_the_page(tmp_path: Path):
    """Services of its own, whose spans are complete when they have stopped."""
    page = tmp_path / "page.html"
    output = output_of("demo", "--html", page)
    assert str(page) in output
    data = page.read_text(encoding="utf8").split('id="data">')[1].split("</script>")[0]
    (session,) = json.loads(data)["sessions"]
    assert (session["status"], session["clock"]) == ("OK", "live")
    assert f"where the time of {len(session['words'])} words went" in output
