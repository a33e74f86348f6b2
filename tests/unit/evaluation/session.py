"""Events of a session, as the client tells them."""

from __future__ import annotations

from pathlib import Path

from earvoice.api.v1 import types_pb2 as types
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    SegmentDone,
    Started,
    Summary,
)
from earvoice.client.model_description import read_model
from earvoice.client.options import TranslationOptions
from earvoice.evaluation.collector import Collector
from earvoice.evaluation.source_set import SourceRecording

MODEL = read_model(types.ModelDescription(name="m", version="1", hash="f00"))


def started(clock="true"):
    return Started("s", MODEL, TranslationOptions(("de",)), "edatt", "0.1.0", clock, 0)


def word(text, delay_ms, elapsed_ms, *, starts_word=True, utterance=0, heard=(0.0, 100.0)):
    return CommittedWord(
        text=text,
        starts_word=starts_word,
        target_language="de",
        utterance=utterance,
        source_start_ms=heard[0],
        source_end_ms=heard[1],
        delay_ms=delay_ms,
        elapsed_ms=elapsed_ms,
        received_ms=elapsed_ms + 5,
    )


def segment(end_ms, computation_ms, *words, utterance=0):
    done = SegmentDone(utterance, 1, end_ms, computation_ms, 0.0, 0, len(words))
    return [Committed(words, 0, b""), done] if words else [done]


def utterance(number, start_ms, end_ms):
    return [EndOfUtterance(number, start_ms, end_ms, "pause", "")]


def summary(audio_ms):
    return [Summary(audio_ms, 0, 0, 0, 0, 0, 0.0, {})]


def collect(*groups, unit="word", live=False, clock="true", reference="ein Haus", index=0):
    """Collect a session of events and return its line of a log."""
    collector = Collector(unit, live)
    for event in [started(clock), *(event for group in groups for event in group)]:
        collector.add(event)
    recording = SourceRecording(index, Path(f"set/{index}.wav"), 2000.0, reference)
    return collector.finish(recording, "de")


def short_session(**options):
    """Collect two seconds of audio: a silent segment, one with two words, one with one."""
    return collect(
        segment(500.0, 700.0),
        segment(1000.0, 100.0, word("ein", 1000.0, 1240.0), word("altes", 1000.0, 1260.0)),
        segment(2000.0, 300.0, word("Haus", 2000.0, 2250.0, heard=(1500.0, 1800.0))),
        utterance(0, 0.0, 2000.0),
        summary(2000.0),
        **options,
    )
