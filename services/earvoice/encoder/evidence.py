"""What the encoder heard: the greedy CTC transcript and the speech in the audio."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby, pairwise

from earvoice.encoder.label_kind import LabelKind
from earvoice.encoder.timeline import Timeline
from earvoice.encoder.voice_activity import WINDOW_SAMPLES, Span


@dataclasses.dataclass(frozen=True)
class VoiceActivity:
    """Where speech was found; positions on the wire, meaningless without speech."""

    has_speech: bool
    speech_start_sample: int
    speech_end_sample: int
    pauses: tuple[Span, ...]


@dataclasses.dataclass(frozen=True)
class SourceWords:
    """The greedy CTC transcript as words."""

    complete_count: int
    has_partial: bool
    labels: tuple[int, ...]
    """Repeats collapsed, blanks dropped."""


def source_words(
    frame_labels: Sequence[int], blank: int, label_kinds: Sequence[LabelKind], *, final: bool
) -> SourceWords:
    """Collapse the frames' labels and count the words that they spell.

    A word is known to be complete when a border has come, or the audio has ended. A border without
    a letter after it begins no word yet, as in the papers' code.

    Args:
        frame_labels: greedy CTC label of every frame.
        blank: the label that means blank.
        label_kinds: by label: what it does to the words.
        final: whether the audio has ended.
    """
    labels = tuple(label for label, _ in groupby(frame_labels) if label != blank)
    count, within_word = 0, False
    for kind in (label_kinds[label] for label in labels):
        if kind is LabelKind.BORDER:
            within_word = False
        elif kind is LabelKind.START or (kind is LabelKind.INNER and not within_word):
            count, within_word = count + 1, True
    has_partial = within_word and not final
    return SourceWords(count - has_partial, has_partial, labels)


def last_label_end_frame(frame_labels: Sequence[int], blank: int) -> int:
    """The frame after the last that is not blank; 0 when all are."""
    for frame in range(len(frame_labels), 0, -1):
        if frame_labels[frame - 1] != blank:
            return frame
    return 0


def voice_activity(spans: Sequence[Span], timeline: Timeline) -> VoiceActivity:
    """Stretches of speech in windows as positions, and the pauses between them."""
    if not spans:
        start = timeline.start_sample
        return VoiceActivity(
            has_speech=False, speech_start_sample=start, speech_end_sample=start, pauses=()
        )

    def position(window: int) -> int:
        return timeline.after_model_samples(window * WINDOW_SAMPLES)

    return VoiceActivity(
        has_speech=True,
        speech_start_sample=position(spans[0][0]),
        speech_end_sample=position(spans[-1][1]),
        pauses=tuple((position(a[1]), position(b[0])) for a, b in pairwise(spans)),
    )
