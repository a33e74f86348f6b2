"""SimulEval and simulstream drive our services, where they are installed (docs/evaluation.md)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from string import punctuation

import pytest
import soundfile

from earvoice.evaluation.log import ReadingOptions, read_records
from earvoice.evaluation.log_formats import read_log
from tests.e2e.running import Running
from tests.e2e.test_evaluate import RECORDING, output_of

pytestmark = pytest.mark.torch

OPTIONS = ("--policy", "edatt:alpha=0.2", "--no-endpointing")
SEGMENT_MS = 640


@pytest.fixture
def test_set(tmp_path: Path) -> Path:
    """The demo's first six seconds."""
    samples, rate_hz = soundfile.read(RECORDING, dtype="int16")
    soundfile.write(tmp_path / "a.wav", samples[: 6 * rate_hz], rate_hz)
    (tmp_path / "wavs.txt").write_text(f"{tmp_path / 'a.wav'}\n")
    (tmp_path / "refs.txt").write_text("ein Satz\n")
    return tmp_path


def run_tool(name: str, *arguments: object) -> None:
    tool = shutil.which(name)
    if tool is None:
        pytest.skip(f"{name} is not installed: make test-tools installs it")
    subprocess.run([tool, *map(str, arguments)], check=True, capture_output=True)


def evaluated(services: Running, test_set: Path) -> tuple[str, tuple[float, ...]]:
    """Return text and delays by our own command."""
    target = ("--server", services.address, "--output", test_set / "ours")
    output_of("evaluate", "--source", test_set / "wavs.txt", *target, *OPTIONS)
    (record,) = read_records(test_set / "ours" / "instances.log")
    return record.text("prediction"), record.numbers("delays")


def completed_words(text: str, delays: tuple[float, ...]) -> list[tuple[str, float]]:
    """Words as ours: a mark that comes a segment later completes the last, and is no word."""
    words: list[tuple[str, float]] = []
    for word, delay in zip(text.split(), delays, strict=True):
        if words and not word.strip(punctuation):
            words[-1] = (words[-1][0] + word, delay)
        else:
            words.append((word, delay))
    return words


def test_simuleval_writes_our_words_with_our_delays(services: Running, test_set: Path):
    """Its pieces are our segments."""
    agent = "earvoice.adapter.simuleval_agent.EarvoiceAgent"
    options = " ".join(("--server", services.address, *OPTIONS))
    run_tool(
        *("simuleval", "--agent-class", agent, "--earvoice", options),
        *("--source", test_set / "wavs.txt", "--target", test_set / "refs.txt"),
        *("--source-segment-size", SEGMENT_MS, "--output", test_set / "theirs"),
    )
    (record,) = read_records(test_set / "theirs" / "instances.log")
    found = completed_words(record.text("prediction"), record.numbers("delays"))
    assert found == completed_words(*evaluated(services, test_set))


def test_simulstream_writes_our_words_with_our_delays(services: Running, test_set: Path):
    """Its chunks are our segments."""
    config = {
        "type": "earvoice.adapter.simulstream_processor.EarvoiceProcessor",
        "speech_chunk_size": SEGMENT_MS / 1000,
        "earvoice": " ".join(("--server", services.address, *OPTIONS)),
    }
    # JSON is YAML.
    (test_set / "processor.yaml").write_text(json.dumps(config))
    log = test_set / "metrics.jsonl"
    run_tool(
        *("simulstream_inference", "--speech-processor-config", test_set / "processor.yaml"),
        *("--wav-list-file", test_set / "wavs.txt", "--tgt-lang", "de"),
        *("--metrics-log-file", log),
    )
    (instance,) = read_log(log, read_records(log), ReadingOptions()).instances
    prediction, delays_ms = evaluated(services, test_set)
    assert instance.prediction == prediction
    assert instance.delays_ms == pytest.approx(delays_ms)
