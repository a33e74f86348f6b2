"""What the papers' code computed for a checkpoint: named tensors, by compression and utterance."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from earvoice.evaluation.readers.log import LogError

BATCH_PREFIX = "batch"
"""`batch2` is the first two utterances, padded in one batch."""


class ForwardReference:
    """Arrays under `<compression>/<utterance>/<name>`.

    Args:
        path: the `.npz` file.

    Raises:
        LogError: it is no such file, or a key has other parts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrays = read_arrays(path)
        parts = [key.split("/") for key in self._arrays]
        wrong = next((part for part in parts if len(part) != 3), None)  # noqa: PLR2004 - three parts
        if wrong is not None:
            raise LogError(str(path), f"has {'/'.join(wrong)}; allowed: compression/utterance/name")
        self.strategies = list(dict.fromkeys(part[0] for part in parts))

    def choose(self, strategy: str | None) -> list[str]:
        """The compressions to compare: one, or all there are.

        Raises:
            LogError: there is none of this name.
        """
        if strategy is None:
            return self.strategies
        if strategy not in self.strategies:
            allowed = ", ".join(self.strategies)
            raise LogError(str(self._path), f"has no {strategy!r}; allowed: {allowed}")
        return [strategy]

    def utterances(self, strategy: str) -> list[str]:
        """The utterances and batches of a compression, in the file's order."""
        keys = (key.split("/") for key in self._arrays)
        return list(dict.fromkeys(key[1] for key in keys if key[0] == strategy))

    def tensors(self, strategy: str, utterance: str) -> Mapping[str, np.ndarray]:
        """The arrays of one utterance by name."""
        prefix = f"{strategy}/{utterance}/"
        return {
            key.removeprefix(prefix): array
            for key, array in self._arrays.items()
            if key.startswith(prefix)
        }


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` file.

    Raises:
        LogError: it is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise LogError(str(path), f"is not an .npz file of arrays ({error})") from error
