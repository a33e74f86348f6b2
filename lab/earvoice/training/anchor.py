"""Where the pieces of a clip are spoken, as far as letters and loudness tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_PAUSE_NATS = 9.0
"""Frames this far under the loudest one are pauses."""


def anchor_frames(features: NDArray[np.float32], characters: Sequence[int]) -> list[int]:
    """Guess where each piece of a clip is spoken: letters last equally long, pauses do not count.

    Synthetic speech is steady enough for this to be right within a syllable or two.

    Args:
        features: log-mel of one clip before noise is added, [frames, 80].
        characters: letters of each piece.

    Returns:
        For each piece the frame of its middle.
    """
    ends = np.cumsum(characters)
    return _frames_at(features, ends - np.asarray(characters) / 2, ends)


def end_frame(features: NDArray[np.float32], characters: Sequence[int], pieces: int) -> int:
    """Guess, as `anchor_frames` does, where the first so many pieces, 1 or more, end."""
    ends = np.cumsum(characters)
    return _frames_at(features, ends[pieces - 1 : pieces], ends)[0]


def _frames_at(
    features: NDArray[np.float32], letters: NDArray[np.float64], ends: NDArray[np.int64]
) -> list[int]:
    """Return the frames in which so many letters have been spoken."""
    loudness = features.mean(axis=1)
    spoken = np.cumsum(loudness > loudness.max() - _PAUSE_NATS)
    shares = letters / max(1, int(ends[-1]) if len(ends) else 1)
    places = np.searchsorted(spoken, shares * spoken[-1])
    return [min(int(place), len(features) - 1) for place in places]
