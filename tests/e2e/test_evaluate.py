"""A small test set through the real services, and what its log says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import soundfile

from earvoice.evaluation.instance import true_elapsed
from earvoice.evaluation.log import read_records
from earvoice.evaluation.log_formats import read_segments
from tests.e2e.running import Running, earvoice

pytestmark = pytest.mark.torch

RECORDING = Path(__file__).parents[2] / "demo" / "librispeech_1995-1837-0001.wav"


def output_of(*arguments: object) -> str:
    done = earvoice(*arguments)
    done.check_returncode()
    return done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    samples, rate_hz = soundfile.read(RECORDING, dtype="int16")
    for name, part in (("a", samples[: 3 * rate_hz]), ("b", samples[3 * rate_hz :])):
        soundfile.write(tmp_path / f"{name}.wav", part, rate_hz)
    path = tmp_path / "wavs.txt"
    path.write_text(f"a.wav\nb.wav\n{RECORDING}\n")
    return path


def read_scores(folder: Path) -> dict[tuple[str, str], str]:
    rows = [line.split("\t") for line in (folder / "scores.tsv").read_text().splitlines()]
    return {(metric, clock): value for metric, clock, value, _ in rows}


def whole_words(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was released of a word later completes it: it has been released only then."""
    words: list[dict[str, Any]] = []
    for item in items:
        if not item["starts_word"] and words:
            before = words.pop()
            item |= {
                "text": before["text"] + item["text"],
                "source_start_ms": min(before["source_start_ms"], item["source_start_ms"]),
                "source_end_ms": max(before["source_end_ms"], item["source_end_ms"]),
            }
        words.append(item)
    return words


def test_a_log_has_what_the_services_said(services: Running, source: Path):
    """Words, delays and intervals are those of `earvoice translate`, which uses the same API."""
    folder = source.parent / "run"
    target = ("--server", services.address, "--to", "de")
    output_of("evaluate", "--source", source, *target, "--output", folder, "--transcript")
    record = read_records(folder / "instances.log")[2]
    options = (*target, "--transcript", "--format", "jsonl")
    events = [json.loads(line) for line in output_of("translate", RECORDING, *options).splitlines()]
    items = whole_words([event for event in events if event["type"] == "word"])
    assert record.text("prediction") == " ".join(item["text"] for item in items)
    assert record.numbers("delays") == tuple(item["delay_ms"] for item in items)
    assert record.pairs("source_intervals") == [
        (item["source_start_ms"], item["source_end_ms"]) for item in items
    ]
    ends = [event for event in events if event["type"] == "utterance_end"]
    heard = [event["source_transcript"] for event in ends]
    assert all(heard)
    written = json.loads((folder / "instances.log").read_text().splitlines()[2])
    assert [utterance["source_transcript"] for utterance in written["utterances"]] == heard


def test_clocks_are_in_order_and_complete(services: Running, source: Path):
    """Every word leaves within its segment's work, and the scores follow the clocks' order."""
    folder = source.parent / "run"
    output_of("evaluate", "--source", source, "--server", services.address, "--output", folder)
    for record in read_records(folder / "instances.log"):
        segments = read_segments(record)
        assert segments[-1].end_ms == pytest.approx(record.number("source_length"))
        assert all(segment.computation_ms > 0 for segment in segments)
        times_ms = zip(
            record.numbers("delays"),
            true_elapsed(segments),
            record.numbers("elapsed"),
            strict=True,
        )
        assert all(ideal < true <= simuleval + 1e-6 for ideal, true, simuleval in times_ms)
    scores = read_scores(folder)
    assert float(scores["LAAL", "ideal"]) < float(scores["LAAL", "true"])
    assert float(scores["LAAL", "true"]) <= float(scores["LAAL", "simuleval"])


def test_several_streams_change_no_word(services: Running, source: Path):
    """Text and delays depend on the audio alone, so a run may use every core."""
    for streams in (1, 3):
        arguments = ("--source", source, "--server", services.address, "--streams", streams)
        output_of("evaluate", *arguments, "--output", source.parent / str(streams))
    one, three = (
        [
            (record.text("prediction"), record.numbers("delays"))
            for record in read_records(source.parent / str(streams) / "instances.log")
        ]
        for streams in (1, 3)
    )
    assert one == three
