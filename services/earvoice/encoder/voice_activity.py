"""From speech probabilities to stretches of speech."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW_SAMPLES = 512
"""16 kHz samples that one probability is about."""

SPEECH_THRESHOLD = 0.5
"""Probability from which on speech begins."""

SILENCE_THRESHOLD = 0.35
"""Probability under which speech ends; between the two nothing changes."""

MINIMUM_PAUSE_WINDOWS = 4
"""Shortest pause that parts two stretches: 128 ms, the first multiple of 32 ms over 100 ms."""

Span = tuple[int, int]


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
