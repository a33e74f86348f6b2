"""Captions fit the screen and the reader, and say every word once."""

from __future__ import annotations

import io
import itertools
import sys
from dataclasses import replace

import pytest
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.client.captions import (
    COLUMNS_PER_SECOND,
    DELAY_LIMIT_MS,
    LINE_COLUMNS,
    LONGEST_MS,
    SHORTEST_MS,
    VTT_HEADER,
    CaptionMarks,
    CaptionWriter,
    Cue,
    srt_block,
    vtt_block,
)
from earvoice.client.event import CommittedWord, NotUnderstood

LETTERS = st.text("abcdeÄß,.?!&<>-", min_size=1, max_size=14)
LONG = st.integers(40, 200).map(lambda count: "x" * count)
WIDE = st.text("今日は、東京。ab", min_size=1, max_size=20)


def word(text: str, start_ms: float, end_ms: float, *, starts: bool = True) -> CommittedWord:
    return CommittedWord(text, starts, "de", 0, start_ms, end_ms, end_ms, end_ms, end_ms)


def speech(texts=LETTERS | LONG | WIDE):
    """Words in order, as cross-attention places them: not quite in the order of the audio."""
    moves = st.tuples(texts, st.integers(-400, 3000), st.integers(0, 1500), st.integers(0, 4))

    def spoken(drawn):
        words, position_ms = [], 0
        for text, step_ms, length_ms, joint in drawn:
            position_ms = max(0, position_ms + step_ms)
            words.append(word(text, position_ms, position_ms + length_ms, starts=joint > 0))
        return words

    return st.lists(moves, min_size=1, max_size=20).map(spoken)


def captions(words: list[CommittedWord], ends: tuple[int, ...] = ()) -> list[Cue]:
    """All cues; an utterance ends after each word whose place is in ``ends``."""
    writer = CaptionWriter()
    cues = []
    for place, spoken in enumerate(words):
        cues += writer.add(spoken)
        if place in ends:
            cues += writer.end_utterance()
    return cues + writer.end_utterance()


def spelled(words: list[CommittedWord]) -> str:
    return "".join("".join(spoken.text.split()) for spoken in words)


@given(speech(), st.sets(st.integers(0, 25)))
def test_every_letter_is_shown_once_and_in_order(words, ends):
    """Nothing is lost between cues, lines and utterances, and nothing doubled."""
    shown = "".join("".join(line.split()) for cue in captions(words, ends) for line in cue.lines)
    assert shown == spelled(words)


@given(speech(LETTERS), st.sets(st.integers(0, 25)))
def test_words_stay_whole(words, ends):
    """A blank stands where the translation has one, or a line or utterance ends."""
    for spoken in words:
        object.__setattr__(spoken, "starts_word", True)
    shown = " ".join(line for cue in captions(words, ends) for line in cue.lines)
    assert shown.split(" ") == [spoken.text for spoken in words]


@given(speech(), st.sets(st.integers(0, 25)))
def test_cues_fit_the_screen_and_time(words, ends):
    """Two lines of 42 columns, 1 to 7 s, none before the one ahead of it has gone."""
    cues = captions(words, ends)
    for cue in cues:
        assert 1 <= len(cue.lines) <= 2
        assert all(0 < len(line) <= LINE_COLUMNS for line in cue.lines)
        assert SHORTEST_MS <= cue.end_ms - cue.start_ms <= LONGEST_MS
    for before, after in itertools.pairwise(cues):
        assert before.end_ms <= after.start_ms


@given(speech(LETTERS))
def test_there_is_time_to_read(words):
    """At most 17 characters a second, unless the captions are late for the speaker already.

    Words that fit a line: the second half of one that is cut is as old as its beginning.
    """
    for spoken in words:
        object.__setattr__(spoken, "starts_word", True)
    letters = iter([spoken for spoken in words for _ in spelled([spoken])])
    for cue in captions(words):
        said = [next(letters) for line in cue.lines for _ in "".join(line.split())]
        delay_ms = cue.start_ms - min(spoken.source_start_ms for spoken in said)
        if delay_ms <= DELAY_LIMIT_MS:
            seconds = (cue.end_ms - cue.start_ms) / 1000
            assert len(" ".join(cue.lines)) <= COLUMNS_PER_SECOND * seconds + 0.1


@given(speech(), st.integers(1, 25))
def test_what_was_shown_is_never_changed(words, count):
    """The cues of the first words are the first cues of all words."""
    writer = CaptionWriter()
    early = [cue for spoken in words[:count] for cue in writer.add(spoken)]
    assert captions(words)[: len(early)] == early


def test_lines_break_at_clauses():
    """A comma is a better place than the middle, a full stop ends the cue."""
    text = "Wenn es morgen regnet, bleiben wir zu Hause und lesen. Sonst gehen wir in die Stadt."
    words = [
        word(part, 300.0 * place, 300.0 * place + 300) for place, part in enumerate(text.split())
    ]
    first, second = captions(words)
    assert first.lines == ("Wenn es morgen regnet,", "bleiben wir zu Hause und lesen.")
    assert second.lines == ("Sonst gehen wir in die Stadt.",)
    assert (first.start_ms, first.end_ms) == (0, 3176)
    assert second.start_ms == 3176


def test_a_pause_ends_a_cue():
    """What comes after a second of silence is not shown with what came before."""
    words = [word("Guten", 0, 300), word("Tag", 300, 600), word("Hallo", 3000, 3300)]
    assert [cue.lines for cue in captions(words)] == [("Guten Tag",), ("Hallo",)]


@pytest.mark.parametrize("mark", [".", "？", "！", "。", "؟"])  # noqa: RUF001 - as written
def test_a_sentence_is_shown_when_the_next_begins(mark):
    """Live, a caption waits for one more word and no longer, in any script."""
    writer = CaptionWriter()
    for place, part in enumerate(["Das", "ist", "ein", "ganzer", "Satz" + mark]):
        assert writer.add(word(part, 200.0 * place, 200.0 * place + 200)) == []
    (cue,) = writer.add(word("Und", 1000, 1200))
    assert cue.lines == ("Das ist ein ganzer Satz" + mark,)


def test_a_later_piece_stays_with_its_word():
    """A full stop that was released later is no word of its own."""
    cue, *_ = captions([word("Haus", 0, 500), word(".", 500, 500, starts=False)])
    assert cue.lines == ("Haus.",)


def test_chinese_breaks_between_characters():
    """Without blanks a line may end anywhere but before a mark."""
    letters = [
        word(letter, 150.0 * n, 150.0 * n, starts=False) for n, letter in enumerate("字" * 60)
    ]
    cues = captions(letters)
    assert [[len(line) for line in cue.lines] for cue in cues] == [[21, 21], [18]]


@settings(max_examples=20)
@given(speech())
def test_another_program_reads_the_files(words):
    """webvtt-py finds the same times and lines in WebVTT and in SubRip."""
    cues = captions(words)
    vtt = VTT_HEADER + "".join(map(vtt_block, cues))
    srt = "".join(srt_block(number, cue) for number, cue in enumerate(cues, start=1))
    for read in (webvtt.from_string(vtt), webvtt.from_buffer(io.StringIO(srt), format="srt")):
        assert [(times(found.start), times(found.end)) for found in read] == [
            (cue.start_ms, cue.end_ms) for cue in cues
        ]
        assert [len(found.lines) for found in read] == [len(cue.lines) for cue in cues]


def times(text: str) -> int:
    """Milliseconds of ``HH:MM:SS.mmm``."""
    hours, minutes, seconds = text.replace(",", ".").split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000 + round(1000 * float(seconds))


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (srt_block(1, Cue(0, 3_723_004, ("a", "b"))), "1\n00:00:00,000 --> 01:02:03,004\na\nb\n\n"),
        (
            vtt_block(Cue(5, 1005, ("a < b & c",))),
            "00:00:00.005 --> 00:00:01.005\na &lt; b &amp; c\n\n",
        ),
    ],
)
def test_the_forms_of_a_cue(block, text):
    assert block == text


def unsure(text: str, confidence: float) -> CommittedWord:
    return replace(word(text, 1000, 2000), confidence=confidence)


@pytest.mark.parametrize(
    ("text", "confidence", "shown"),
    [
        ("Haus", 0.49, "Haus(?)"),
        ("Haus.", 0.49, "Haus(?)."),
        ("»Haus!«", 0.1, "»Haus(?)!«"),
        ("3:30", 0.1, "3:30(?)"),
        ("Haus", 0.5, "Haus"),
        ("—", 0.1, "—"),
    ],
)
def test_an_unsure_word_is_marked_behind_its_last_letter(text, confidence, shown):
    """Below what was asked for; nobody hears a dash."""
    writer = CaptionWriter(marks=CaptionMarks(below=0.5))
    writer.add(unsure(text, confidence))
    (cue,) = writer.end_utterance()
    assert cue.lines == (shown,)


@given(speech(LETTERS | LONG), st.sets(st.integers(0, 25)))
def test_marked_captions_fit_too(words, ends):
    """Lines have room for their marks, and without these they say what they say."""
    writer = CaptionWriter(marks=CaptionMarks(below=0.5))
    cues = []
    for place, spoken in enumerate(words):
        cues += writer.add(replace(spoken, confidence=place % 3 / 3))
        cues += writer.end_utterance() if place in ends else []
    cues += writer.end_utterance()
    lines = [line for cue in cues for line in cue.lines]
    assert all(len(line) <= LINE_COLUMNS for line in lines)
    shown = "".join("".join(line.split()) for line in lines)
    spelled_out = spelled(words)
    assert shown.replace("(?)", "") == spelled_out.replace("(?)", "")


def test_what_was_not_understood_has_a_cue_of_its_own():
    """Behind what was shown before, as long as it was said, within the limits of a cue."""
    writer = CaptionWriter(marks=CaptionMarks(not_understood="[not understood]"))
    writer.add(word("Ja.", 0, 3000))
    (said,) = writer.end_utterance()
    (lost,) = writer.end_utterance(NotUnderstood(2500.4, 6000.0))
    assert lost == Cue(said.end_ms, 6000, ("[not understood]",))
    (short,) = writer.end_utterance(NotUnderstood(20_000.0, 20_100.0))
    assert (short.start_ms, short.end_ms) == (20_000, 20_000 + SHORTEST_MS)
    (long,) = writer.end_utterance(NotUnderstood(30_000.0, 50_000.0))
    assert long.end_ms == 30_000 + LONGEST_MS
    assert CaptionWriter().end_utterance(NotUnderstood(0.0, 9.0)) == []


def test_not_understood_in_wide_letters_fits_the_lines():
    """Each takes two columns; what a cue cannot hold is left out."""
    for count, lines in ((30, ("聞" * 21, "聞" * 9)), (60, ("聞" * 21, "聞" * 21))):
        writer = CaptionWriter(marks=CaptionMarks(not_understood="聞" * count))
        (cue,) = writer.end_utterance(NotUnderstood(0.0, 2000.0))
        assert cue.lines == lines


def test_a_word_of_any_length_takes_work_in_proportion():
    """Twice the letters, twice the calls; what cannot be a word comes from a model all the same."""

    def work(letter_count: int) -> int:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            captions([word("x" * letter_count, 0, 300)])
        finally:
            sys.setprofile(None)
        return calls

    assert work(20_000) < 2.5 * work(10_000)
