"""Lowest and highest values of a stream's numbers, for servers and clients alike."""

from __future__ import annotations

SEGMENT_MS = (200, 10_000)
INITIAL_WAIT_MS = (0, 10_000)
PAUSE_MS = (200, 5000)
MOST_PAUSE_IN_SENTENCE_MS = 10_000
MAX_UTTERANCE_MS = (5000, 30_000)
TARGET_LAG_MS = (500, 20_000)
BEAM_SIZE = (1, 16)
HISTORY_WORDS = (1, 200)
