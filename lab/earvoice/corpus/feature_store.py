"""Cached log-mel features on disk: named shards, each complete or absent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from earvoice.runtime.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

MEL_BINS = 80


@dataclass(frozen=True)
class FeatureClip:
    """One clip's place in a shard.

    Attributes:
        key: unique name of the clip.
        sentence: key of the sentence it speaks; empty where the words are not known.
        voice: engine and voice, or the corpus of a recording.
        frames: length in frames of 10 ms.
    """

    key: str
    sentence: str
    voice: str
    frames: int


class FeatureStore:
    """A folder of shards: ``NAME.npy`` (float16 [frames, 80], not normalised), ``NAME.json``.

    The index is written last: a shard with an index is complete.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder; it is made when missing."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, name: str, since_s: float = 0.0) -> bool:
        """Tell whether a shard is complete, and not older than what it was made from."""
        index = self.folder / f"{name}.json"
        return index.exists() and index.stat().st_mtime >= since_s

    def write(
        self, name: str, clips: Sequence[FeatureClip], features: Sequence[NDArray[np.float16]]
    ) -> None:
        """Write one shard; `features` hold one [frames, 80] array for each clip."""
        empty = np.zeros((0, MEL_BINS), np.float16)
        np.save(self.folder / f"{name}.npy", np.concatenate([empty, *features]))
        with atomic_write(self.folder / f"{name}.json") as index:
            index.write_text(json.dumps([asdict(clip) for clip in clips]), encoding="utf-8")

    def read(self) -> Iterator[tuple[FeatureClip, NDArray[np.float16]]]:
        """Yield all clips with their features, [frames, 80] float16, shard by shard."""
        for index in sorted(self.folder.glob("*.json")):
            features = np.load(index.with_suffix(".npy"))
            start = 0
            for row in json.loads(index.read_text(encoding="utf-8")):
                clip = FeatureClip(**row)
                yield clip, features[start : start + clip.frames]
                start += clip.frames
