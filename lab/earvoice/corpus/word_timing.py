"""Synthesised speech with the time of each word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from earvoice.corpus.synthesizer import SynthesisError
from earvoice.evaluation.log import SpokenWord

TimedSpeech = tuple[NDArray[np.int16], tuple[SpokenWord, ...]]
"""One spoken text: [samples] at 16 kHz, and its blank-separated words in order."""


def time_words(
    text: str, spans_s: Sequence[tuple[float, float]], speed: float, duration_ms: float
) -> tuple[SpokenWord, ...]:
    """Return the timings of the words of a text.

    Args:
        text: what was said.
        spans_s: start and end of each of its words in seconds, before the change of speed.
        speed: the sound is played this many times faster than the engine spoke.
        duration_ms: length of the sound as played; no word ends later.

    Raises:
        SynthesisError: the engine said a different number of words.
    """
    words = text.split()
    if len(words) != len(spans_s):
        message = f"{len(spans_s)} words were said of {text!r}; allowed: {len(words)}"
        raise SynthesisError(message)
    timed = []
    earliest_ms = 0.0
    for word, (start_s, end_s) in zip(words, spans_s, strict=True):
        start_ms = min(max(1000 * start_s / speed, earliest_ms), duration_ms)
        earliest_ms = min(max(1000 * end_s / speed, start_ms), duration_ms)
        timed.append(SpokenWord(word, round(start_ms, 1), round(earliest_ms, 1)))
    return tuple(timed)
