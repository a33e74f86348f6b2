"""JSON lines."""

import io
import json

import pytest

from earvoice.cli.json_lines import JsonLineWriter
from earvoice.client.audio_format import AudioFormat
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    StageTimings,
    Started,
    Tentative,
)
from earvoice.client.options import TranslationOptions

STARTS_WORD = True
OPTIONS = TranslationOptions(("de",), AudioFormat(), transcript=True)
TIMINGS = StageTimings(*range(12))
WORD = CommittedWord("schön", STARTS_WORD, "de", 1, 10.00049, 20.0, 30.0, 40.0, 45.0)
TIMED = CommittedWord("da", STARTS_WORD, "de", 1, 10.0, 20.0, 30.0, 40.0, 45.0, TIMINGS)


def write(*events, options=OPTIONS):
    """Return the objects that the events become."""
    output = io.StringIO()
    writer = JsonLineWriter(output, "a.wav", options)
    for event in events:
        writer.write(event)
    writer.close()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_an_item_has_exactly_the_promised_fields():
    """Names and values, rounded to microseconds."""
    assert write(Committed((WORD,), 0, b"")) == [
        {
            "text": "schön",
            "starts_word": True,
            "utterance": 1,
            "source_start_ms": 10.0,
            "source_end_ms": 20.0,
            "delay_ms": 30.0,
            "elapsed_ms": 40.0,
            "elapsed_clock": "true",
            "target_language": "de",
            "file": "a.wav",
        }
    ]


@pytest.mark.parametrize(("clock", "residual"), [("live", 5.0), ("true", None)])
def test_the_residual_exists_on_the_live_clock_only(clock, residual):
    """Wall clock and replayed computation are never subtracted from each other."""
    started = Started("s", None, OPTIONS, "edatt", "0", clock, 0)
    (item,) = write(started, Committed((TIMED,), 0, b""))
    assert item["client_network_ms"] == residual
    assert item["received_ms"] == 45.0
    assert item["stage_timings"]["audio_wait_ms"] == 11


def test_tails_and_transcripts_have_lines_of_their_own():
    """They are told from items by their first field."""
    end = EndOfUtterance(0, 0.0, 1000.0, "pause", "heard")
    tail, transcript = write(Tentative("viel", "de", 0), end)
    assert (tail["tentative"], transcript["source_transcript"]) == ("viel", "heard")
    assert write(end, options=TranslationOptions(("de",))) == []
