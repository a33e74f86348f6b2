"""What the encoder heard, as the policy service sees it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class VoiceActivity:
    """The detector's view of the utterance so far; positions in the session's samples.

    Attributes:
        pauses: (start, end) of stretches of 100 ms or more without speech, speech on both sides.
    """

    has_speech: bool
    speech_end_sample: int = 0
    pauses: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Evidence:
    """One revision's evidence.

    Attributes:
        ctc_labels: label of each state; none where the model has no CTC head.
        span_end_samples: per state, where the audio it covers ends.
        label_count: non-blank labels, repeats collapsed.
        frame_count: feature frames of 10 ms.
        source_transcript: of the whole utterance, at its end.
        partial_transcript: of the audio so far, before the utterance's end, where it is needed.
    """

    ctc_labels: Sequence[int]
    blank_label: int
    span_end_samples: Sequence[int]
    complete_word_count: int
    has_partial_word: bool
    label_count: int
    frame_count: int
    voice_activity: VoiceActivity
    source_transcript: str = ""
    partial_transcript: str = ""

    @property
    def has_labels(self) -> bool:
        """Whether the model gives labels; true as long as there are no states."""
        return bool(self.ctc_labels) or not self.span_end_samples

    @property
    def hears_nothing(self) -> bool:
        """Whether every state's label is the blank."""
        return bool(self.ctc_labels) and not self.label_count

    def attended(self, row: Sequence[float]) -> int:
        """Return the state that a token attends to most.

        The last is left out: attention piles up on it whatever the token (Papi 2023, figure 2).
        """
        shown = row[:-1] or row
        return shown.index(max(shown))

    def span(self, state: int, utterance_start_sample: int) -> tuple[int, int]:
        """Return where the audio of a state begins and ends; pieces of one word share a span."""
        end = self.span_end_samples[state]
        first = bisect.bisect_left(self.span_end_samples, end)
        return self.span_end_samples[first - 1] if first else utterance_start_sample, end
