"""Translations as text and as JSON lines, and how far they are."""

import io
import json

import pytest

from earvoice.cli.output import (
    JsonLineWriter,
    JsonWriter,
    LabelledTextWriter,
    Progress,
    SubtitleWriter,
    TextWriter,
)
from earvoice.client.captions import CaptionMarks
from earvoice.client.event import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    GoAway,
    NotUnderstood,
    SegmentDone,
    StageTimings,
    Started,
    Tentative,
)
from earvoice.client.options import TranslationOptions
from earvoice.runtime.audio_format import AudioFormat

END = EndOfUtterance(0, 0.0, 1000.0, "pause", "heard")


def released(*texts):
    """Return an event that releases these texts; a leading blank starts a word."""
    words = (CommittedWord(t.strip(), t[0] == " ", "de", 0, 0, 0, 0, 0, 0) for t in texts)
    return Committed(tuple(words), 0, b"")


def write_text(*events, width=80, **options):
    output = io.StringIO()
    writer = TextWriter(output, TranslationOptions(("de",), **options), width)
    for event in events:
        writer.write(event)
    writer.close()
    return output.getvalue()


def test_an_utterance_is_a_line():
    """Words are joined as they start words or not; utterances without words leave no line."""
    first = (released(" Guten", " Tag"), released("."), END)
    assert write_text(*first, END, released(" Ja"), END) == "Guten Tag.\nJa\n"


def test_an_open_line_is_ended():
    """A session that failed does not leave the prompt behind the text."""
    assert write_text(released(" Guten")) == "Guten\n"


def test_the_transcript_follows_its_utterance():
    """When asked for, and when there is one."""
    assert write_text(released(" Ja"), END, transcript=True) == "Ja\n  < heard\n"


def test_a_tail_is_drawn_and_taken_back():
    """The text that stays is the same with and without tails."""
    shown = write_text(released(" Guten"), Tentative("Tag", "de", 0), released(" Morgen"), END)
    assert shown == "Guten \x1b[2mTag\x1b[0m\x1b[4D\x1b[K Morgen\n"


def test_a_tail_never_wraps():
    """It is cut at the right edge, since a wrapped one could not be erased."""
    assert "\x1b[2mabcd\x1b[0m" in write_text(Tentative("abcdefgh", "de", 0), width=6)
    assert write_text(released(" 12345"), Tentative("abc", "de", 0), width=6) == "12345\n"


STARTS_WORD = True
OPTIONS = TranslationOptions(("de",), AudioFormat(), transcript=True)
TIMINGS = StageTimings(*range(12))
WORD = CommittedWord(
    "schön", STARTS_WORD, "de", 1, 10.00049, 20.0, 30.0, 40.0, 45.0, confidence=0.87654
)
TIMED = CommittedWord("da", STARTS_WORD, "de", 1, 10.0, 20.0, 30.0, 40.0, 45.0, TIMINGS)


def write_lines(*events, options=OPTIONS):
    output = io.StringIO()
    writer = JsonLineWriter(output, "a.wav", options)
    for event in events:
        writer.write(event)
    writer.close()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_an_item_has_exactly_the_promised_fields():
    """Names and values, rounded to microseconds."""
    assert write_lines(Committed((WORD,), 0, b"")) == [
        {
            "type": "word",
            "text": "schön",
            "starts_word": True,
            "utterance": 1,
            "source_start_ms": 10.0,
            "source_end_ms": 20.0,
            "delay_ms": 30.0,
            "elapsed_ms": 40.0,
            "elapsed_clock": "true",
            "target_language": "de",
            "confidence": 0.877,
            "file": "a.wav",
        }
    ]


@pytest.mark.parametrize(("clock", "residual"), [("live", 5.0), ("true", None)])
def test_the_residual_exists_on_the_live_clock_only(clock, residual):
    """Wall clock and replayed computation are never subtracted from each other."""
    started = Started("s", None, OPTIONS, "edatt", "0", clock, 0)
    (item,) = write_lines(started, Committed((TIMED,), 0, b""))
    assert item["client_network_ms"] == residual
    assert item["received_ms"] == 45.0
    assert item["stage_timings"]["audio_wait_ms"] == 11


def test_tails_and_ends_have_lines_of_their_own():
    """Their type tells them from words; a transcript comes when it is asked for."""
    end = EndOfUtterance(0, 0.0, 1000.0, "pause", "heard")
    tail, ended = write_lines(Tentative("viel", "de", 0), end)
    assert (tail["type"], tail["tentative"]) == ("tentative", "viel")
    assert (ended["type"], ended["cause"], ended["source_end_ms"]) == (
        "utterance_end",
        "pause",
        1000.0,
    )
    assert ended["source_transcript"] == "heard"
    (plain,) = write_lines(end, options=TranslationOptions(("de",)))
    assert "source_transcript" not in plain


def test_what_was_not_understood_is_told_with_its_times():
    """Null where all was; else where it was said."""
    end = EndOfUtterance(
        0, 0.0, 1000.0, "pause", "", not_understood=NotUnderstood(100.00049, 900.0)
    )
    understood, lost = write_lines(END, end)
    assert understood["not_understood"] is None
    assert lost["not_understood"] == {"start_ms": 100.0, "end_ms": 900.0}


def test_an_utterance_ends_in_each_language():
    """So that a reader of one language needs no other line."""
    ends = write_lines(END, options=TranslationOptions(("de", "es")))
    assert [end["target_language"] for end in ends] == ["de", "es"]


def test_languages_have_lines_of_their_own():
    """Text in several languages comes by utterances, behind the tag."""
    output = io.StringIO()
    writer = LabelledTextWriter(output, TranslationOptions(("de", "es")))
    words = [
        CommittedWord(text, starts, language, 0, 0, 0, 0, 0, 0)
        for text, starts, language in (
            ("Guten", True, "de"),
            ("Buenos", True, "es"),
            ("Tag", True, "de"),
            (".", False, "de"),
        )
    ]
    for event in (Committed(tuple(words[:2]), 0, b""), Committed(tuple(words[2:]), 0, b""), END):
        writer.write(event)
    writer.write(released(" Ja"))
    writer.close()
    assert output.getvalue() == "de: Guten Tag.\nes: Buenos\nde: Ja\n"


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_subtitles_come_as_they_are_complete(form):
    """The header first, each cue when its sentence is over, the rest at the end."""
    output = io.StringIO()
    writer = SubtitleWriter(output, form)
    writer.write(released(" Guten", " Tag,", " meine", " Damen!", " Ja"))
    assert "Guten Tag, meine Damen!" in output.getvalue()
    assert "Ja" not in output.getvalue()
    writer.close()
    assert output.getvalue().startswith("WEBVTT\n\n00:" if form == "vtt" else "1\n00:00:00,000 -->")
    assert output.getvalue().endswith("Ja\n\n")


def test_one_object_holds_a_whole_translation():
    """Text, words and captions of each language."""
    output = io.StringIO()
    writer = JsonWriter(output, "a.wav")
    for event in (released(" Guten", " Tag"), released("."), END):
        writer.write(event)
    writer.close()
    content = json.loads(output.getvalue())
    assert (content["file"], content["target_language"]) == ("a.wav", "de")
    assert content["text"] == "Guten Tag."
    assert [word["text"] for word in content["words"]] == ["Guten", "Tag", "."]
    assert [cue["lines"] for cue in content["cues"]] == [["Guten Tag."]]


def test_captions_tell_what_is_unsure_and_what_is_lost():
    """In a file and in one object, as it was asked for."""
    marks = CaptionMarks(0.9, "[not understood]")
    lost = EndOfUtterance(1, 0.0, 9000.0, "pause", "", not_understood=NotUnderstood(5000.0, 8000.0))
    subtitles, whole = io.StringIO(), io.StringIO()
    for writer in (SubtitleWriter(subtitles, "srt", marks), JsonWriter(whole, "a.wav", marks)):
        for event in (Committed((WORD,), 0, b""), END, lost):
            writer.write(event)
        writer.close()
    assert "schön(?)" in subtitles.getvalue()
    assert "00:00:05,000 --> 00:00:08,000\n[not understood]" in subtitles.getvalue()
    content = json.loads(whole.getvalue())
    assert [cue["lines"] for cue in content["cues"]] == [["schön(?)"], ["[not understood]"]]
    assert content["not_understood"] == [{"start_ms": 5000.0, "end_ms": 8000.0}]
    assert content["text"] == "schön"


def show(duration_ms, *, width=80, name="a"):
    """Return what a segment that ends at 2 s writes."""
    output = io.StringIO()
    progress = Progress(output, name, width)
    progress.duration_ms = duration_ms
    progress.write(GoAway(b"", 0))
    progress.write(SegmentDone(0, 1, 2000.0, 1.0, 0.0, 0, 0))
    progress.close()
    return output.getvalue()


def test_it_counts_and_is_erased():
    """With the share when the length is known."""
    assert show(8000.0).startswith("\ra: 2.0 s of 8.0 s (25%)\r  ")
    assert show(None).startswith("\ra: 2.0 s\r")
    assert show(8000.0).endswith(" \r")


def test_it_is_silent_when_nobody_looks():
    """Logs and pipes get no control characters."""
    assert show(8000.0, width=0) == ""


def test_it_stays_on_one_line():
    """A line that wraps could not be taken back: a long name is cut."""
    line = show(8000.0, width=40, name="long/" * 20 + "talk.wav").split("\r")[1]
    assert len(line) < 40
    assert line.endswith("talk.wav: 2.0 s of 8.0 s (25%)")


def test_a_message_does_not_share_the_line():
    """The count is erased first."""
    output = io.StringIO()
    progress = Progress(output, "a", 80)
    progress.write(SegmentDone(0, 1, 2000.0, 1.0, 0.0, 0, 0))
    progress.say("went on elsewhere")
    assert output.getvalue().endswith("\rearvoice: a: went on elsewhere\n")
