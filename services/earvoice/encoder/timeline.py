"""From the model's time to positions on the wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import accumulate

from earvoice.models.config import SAMPLE_RATE_HZ


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Where an utterance lies in its session.

    Attributes:
        start_sample: position of its first sample at the client's rate.
        end_sample: position where the audio heard ends; no position lies behind it.
        rate_hz: the client's rate.
    """

    start_sample: int
    end_sample: int
    rate_hz: int

    def after_ms(self, milliseconds: int) -> int:
        """The position this long after the utterance's start."""
        return min(self.start_sample + milliseconds * self.rate_hz // 1000, self.end_sample)

    def after_model_samples(self, samples: int) -> int:
        """The position this many 16 kHz samples after the utterance's start."""
        position = self.start_sample + samples * self.rate_hz // SAMPLE_RATE_HZ
        return min(position, self.end_sample)

    def span_ends(
        self, run_lengths: Iterable[int], frame_shift_ms: int, *, final: bool
    ) -> list[int]:
        """Where the audio that each state covers ends.

        Args:
            run_lengths: encoder frames behind each state.
            frame_shift_ms: milliseconds between two encoder frames.
            final: whether the utterance ends with the audio heard; its last state then does too.
        """
        ends = [self.after_ms(frames * frame_shift_ms) for frames in accumulate(run_lengths)]
        if final and ends:
            ends[-1] = self.end_sample
        return ends
