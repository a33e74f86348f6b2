"""The fault table's judge sees what it is there for: losses, doubles, holes."""

from __future__ import annotations

from dataclasses import replace

from earvoice.client import CommittedWord, EndOfUtterance, Summary
from tests.faults.comparison import Heard, compare_audio, compare_texts

WORD_MS = 400.0
SPAN = ("source_start_ms", "source_end_ms")
TEXTS = ["das", "ist", "ein", "Satz", "und", "noch", "ein", "anderer"]


def word(number: int, text: str) -> CommittedWord:
    start_ms = WORD_MS * number
    return CommittedWord(
        text=text,
        starts_word=True,
        target_language="de",
        utterance=number // 4,
        source_start_ms=start_ms,
        source_end_ms=start_ms + WORD_MS,
        delay_ms=start_ms + WORD_MS,
        elapsed_ms=start_ms + WORD_MS,
        received_ms=start_ms + WORD_MS,
    )


def end(number: int) -> EndOfUtterance:
    start_ms = number * 4 * WORD_MS
    return EndOfUtterance(number, start_ms, start_ms + 4 * WORD_MS, "pause", "")


def heard(texts: list[str] = TEXTS, item_count: int | None = None) -> Heard:
    """A stream of two utterances with a word every 400 ms."""
    words = [word(number, text) for number, text in enumerate(texts)]
    count = len(words) if item_count is None else item_count
    summary = Summary(
        audio_ms=8 * WORD_MS,
        item_count=count,
        word_count=count,
        utterance_count=2,
        segment_count=8,
        merged_segments=0,
        computation_ms=0.0,
        guards_hit={},
    )
    return Heard(words=words, ends=[end(0), end(1)], summary=summary)


def test_equal_streams_are_good():
    """Nothing lost, nothing doubled, no flaw, by either rule."""
    for compare in (compare_texts, compare_audio):
        comparison = compare(heard(), heard())
        assert (comparison.lost, comparison.doubled, comparison.flaws) == (0, 0, ())


def test_a_missing_word_is_lost():
    """In EVERY_SEGMENT, whether the server knows of it or not."""
    disturbed = heard()
    del disturbed.words[2]
    assert compare_texts(disturbed, heard()).lost == 1
    assert compare_texts(heard(TEXTS[:-1]), heard()).lost == 1


def test_a_word_that_comes_again_is_doubled():
    """In EVERY_SEGMENT."""
    disturbed = heard()
    disturbed.words.insert(3, disturbed.words[2])
    assert compare_texts(disturbed, heard()).doubled == 1


def test_merge_loses_what_the_server_counts_and_nobody_got():
    """The summary knows of one word more."""
    assert compare_audio(heard(item_count=9), heard()).lost == 1
    assert compare_audio(heard(item_count=7), heard()).doubled == 1


def test_merge_loses_the_words_of_audio_that_nobody_decided():
    """The second utterance never ended."""
    disturbed = heard(TEXTS[:4])
    del disturbed.ends[1]
    comparison = compare_audio(disturbed, heard())
    assert comparison.lost == 4
    assert comparison.flaws


def test_merge_doubles_the_words_of_audio_that_is_decided_twice():
    """The first utterance came again."""
    disturbed = heard()
    disturbed.ends.insert(1, end(0))
    comparison = compare_audio(disturbed, heard())
    assert comparison.doubled == 4
    assert comparison.flaws


def test_merge_sees_a_passage_that_is_said_again():
    """Three words that follow themselves of the same audio; of other audio it may be language."""
    twice = heard([*TEXTS[:3], *TEXTS[:3], "und", "noch"])
    assert compare_audio(twice, heard()).doubled == 0
    for first, again in enumerate(range(3, 6)):
        spans = {name: getattr(twice.words[first], name) for name in SPAN}
        twice.words[again] = replace(twice.words[again], **spans)
    assert compare_audio(twice, heard()).doubled == 3


def test_merge_sees_frames_that_are_said_again():
    """Attention is at single frames of 40 ms; decided again, it is beside them."""
    twice = heard([*TEXTS[:3], *TEXTS[:3], "und", "noch"])
    for number in range(6):
        start_ms = WORD_MS * (number % 3) + 80 * (number // 3)
        twice.words[number] = replace(
            twice.words[number], source_start_ms=start_ms, source_end_ms=start_ms + 40
        )
    assert compare_audio(twice, heard()).doubled == 3


def test_merge_doubles_a_word_that_comes_again():
    """A single one: the server tells how many there are."""
    disturbed = heard()
    disturbed.words.insert(3, disturbed.words[2])
    assert compare_audio(disturbed, heard()).doubled == 1


def test_other_words_in_merge_are_no_fault():
    """What is merged is decided elsewhere, and may be said otherwise."""
    comparison = compare_audio(heard(["anders", *TEXTS[1:]]), heard())
    assert (comparison.lost, comparison.doubled) == (0, 0)


def test_a_word_with_less_audio_than_the_one_before_is_a_flaw():
    """Released at an earlier place in the audio."""
    disturbed = heard()
    disturbed.words[5] = replace(disturbed.words[5], delay_ms=100.0)
    assert compare_texts(disturbed, heard()).flaws
