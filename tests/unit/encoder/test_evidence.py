from __future__ import annotations

import pytest

from earvoice.encoder.evidence import last_label_end_frame, source_words
from earvoice.encoder.label_kind import LabelKind
from earvoice.encoder.timeline import Timeline

BLANK = 4
START, INNER, SILENT, BORDER = (
    LabelKind.START,
    LabelKind.INNER,
    LabelKind.SILENT,
    LabelKind.BORDER,
)
KINDS = (START, INNER, START, SILENT, SILENT, BORDER)


@pytest.mark.parametrize(
    ("frame_labels", "labels", "complete", "partial"),
    [
        ([], (), 0, False),
        ([4, 4], (), 0, False),
        ([0, 0, 4, 0], (0, 0), 1, True),
        ([0, 1, 1, 4], (0, 1), 0, True),
        ([1, 4, 2, 1], (1, 2, 1), 1, True),
        ([3, 4, 3], (3, 3), 0, False),
        ([0, 5], (0, 5), 1, False),
        ([0, 5, 1], (0, 5, 1), 1, True),
        ([0, 5, 4, 5, 2, 1], (0, 5, 5, 2, 1), 1, True),
    ],
)
def test_words_while_reading(frame_labels, labels, complete, partial):
    """Repeats collapse, blanks part them, and the word that has not been followed is partial."""
    words = source_words(frame_labels, BLANK, KINDS, final=False)
    assert (words.labels, words.complete_count, words.has_partial) == (labels, complete, partial)


def test_the_end_completes_the_last_word():
    """With the utterance's end no word is partial."""
    words = source_words([0, 4, 2, 1], BLANK, KINDS, final=True)
    assert (words.complete_count, words.has_partial) == (2, False)


def test_last_label_ends_after_its_frame():
    """The end of the last label that is not blank, or nothing when all are blank."""
    assert last_label_end_frame([4, 0, 1, 4, 4], BLANK) == 3
    assert last_label_end_frame([4, 4], BLANK) == 0


def test_spans_are_clamped_and_the_final_one_ends_with_the_audio():
    """A state's end is its frames' end, never behind the audio; a final last state ends with it."""
    timeline = Timeline(start_sample=100, end_sample=100 + 8 * 100, rate_hz=8000)
    assert timeline.span_ends([1, 1], 40, final=False) == [420, 740]
    assert timeline.span_ends([1, 2], 40, final=False) == [420, 900]
    assert timeline.span_ends([1, 1], 40, final=True) == [420, 900]
    assert timeline.span_ends([], 40, final=True) == []
