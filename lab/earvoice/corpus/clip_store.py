"""Synthesised clips on disk: numbered shards, each complete or absent."""

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


@dataclass(frozen=True)
class Clip:
    """One spoken sentence.

    Attributes:
        key: the sentence's key, with a suffix where a sentence is spoken more than once.
        sentence: the sentence's key.
        voice: engine and voice, for the record.
        samples: length at 16 kHz.
    """

    key: str
    sentence: str
    voice: str
    samples: int


class ClipStore:
    """A folder of shards: ``00042.pcm`` (int16, 16 kHz, mono) and ``00042.json`` beside it.

    The index is written last: a shard with an index is complete. ``00042.asked`` tells which
    requests it answers.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder; it is made when missing."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, shard: int, asked: str) -> bool:
        """Tell whether a shard is complete, and answers the requests of this digest.

        One without a digest, as older versions wrote them, answers any.
        """
        path = self._asked_path(shard)
        answers = not path.exists() or path.read_text(encoding="utf-8") == asked
        return answers and self._index_path(shard).exists()

    def written_s(self, shard: int) -> float:
        """Return when a shard was completed, as the file system tells it."""
        return self._index_path(shard).stat().st_mtime

    def shards(self) -> list[int]:
        """Return the numbers of all complete shards, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.json"))

    def write(
        self, shard: int, clips: Sequence[Clip], waves: Sequence[NDArray[np.int16]], asked: str
    ) -> None:
        """Write one shard; `asked` is the digest of its requests."""
        self._index_path(shard).unlink(missing_ok=True)
        self._asked_path(shard).write_text(asked, encoding="utf-8")
        joined = np.concatenate(waves) if waves else np.zeros(0, np.int16)
        joined.tofile(self.folder / f"{shard:05d}.pcm")
        with atomic_write(self._index_path(shard)) as index:
            index.write_text(json.dumps([asdict(clip) for clip in clips]), encoding="utf-8")

    def read(self, shard: int) -> Iterator[tuple[Clip, NDArray[np.int16]]]:
        """Yield the clips of one shard with their samples."""
        samples = np.fromfile(self.folder / f"{shard:05d}.pcm", dtype=np.int16)
        start = 0
        for row in json.loads(self._index_path(shard).read_text(encoding="utf-8")):
            clip = Clip(**row)
            yield clip, samples[start : start + clip.samples]
            start += clip.samples

    def read_all(self) -> Iterator[tuple[Clip, NDArray[np.int16]]]:
        """Yield the clips of all shards with their samples."""
        for shard in self.shards():
            yield from self.read(shard)

    def _asked_path(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}.asked"

    def _index_path(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}.json"
