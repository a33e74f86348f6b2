"""What the encoder heard: words in the CTC transcript, and stretches of speech."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from earvoice.encoder.network import LabelKind

SPEECH_THRESHOLD = 0.5
"""Speech begins at this probability."""

SILENCE_THRESHOLD = 0.35
"""Speech ends below this probability; between the two nothing changes."""

MINIMUM_PAUSE_WINDOWS = 4
"""Shortest pause that separates two stretches: 128 ms, the first multiple of 32 ms over 100 ms."""

Span = tuple[int, int]


def source_words(
    frame_labels: Sequence[int], blank: int, label_kinds: Sequence[LabelKind], *, final: bool
) -> tuple[int, bool, tuple[int, ...]]:
    """Collapse the frames' labels and count the words that they spell.

    A word is known to be complete when a border has come, or the audio has ended. A border without
    a letter after it begins no word yet, as in the papers' code.

    Returns:
        How many words are complete, whether another has begun, and the labels without repeats and
        blanks.
    """
    labels = tuple(label for label, _ in groupby(frame_labels) if label != blank)
    count, within_word = 0, False
    for kind in (label_kinds[label] for label in labels):
        if kind is LabelKind.BORDER:
            within_word = False
        elif kind is LabelKind.START or (kind is LabelKind.INNER and not within_word):
            count, within_word = count + 1, True
    has_partial = within_word and not final
    return count - has_partial, has_partial, labels


def last_label_end_frame(frame_labels: Sequence[int], blank: int) -> int:
    """The frame after the last one that is not blank; 0 when all are blank."""
    for frame in range(len(frame_labels), 0, -1):
        if frame_labels[frame - 1] != blank:
            return frame
    return 0


def speech_spans(probabilities: Sequence[float]) -> list[Span]:
    """Find the stretches of speech, with hysteresis; shorter pauses are part of the speech.

    Args:
        probabilities: of speech, one for each window, 0 to 1.

    Returns:
        [begin, end) in windows, in order, at least `MINIMUM_PAUSE_WINDOWS` apart. Speech that has
        not ended ends with the last window.
    """
    spans: list[Span] = []
    begin: int | None = None
    for window, probability in enumerate(probabilities):
        if begin is None and probability >= SPEECH_THRESHOLD:
            begin = window
        elif begin is not None and probability < SILENCE_THRESHOLD:
            _append(spans, (begin, window))
            begin = None
    if begin is not None:
        _append(spans, (begin, len(probabilities)))
    return spans


def _append(spans: list[Span], span: Span) -> None:
    if spans and span[0] - spans[-1][1] < MINIMUM_PAUSE_WINDOWS:
        spans[-1] = (spans[-1][0], span[1])
    else:
        spans.append(span)
