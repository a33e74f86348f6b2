"""An array that grows at its end."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Element = TypeVar("Element", bound=np.generic)


class GrowingArray(Generic[Element]):
    """Rows appended in blocks, read as one array without a copy.

    Args:
        empty: an array of shape [0, ...]: gives dtype and the shape of a row.
    """

    def __init__(self, empty: NDArray[Element]) -> None:
        self._rows = empty
        self._count = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._count

    @property
    def rows(self) -> NDArray[Element]:
        """All rows; valid until the next `append`."""
        return self._rows[: self._count]

    def append(self, block: NDArray[Element]) -> None:
        """Add rows; the room doubles, so that each row is copied a bounded number of times."""
        needed = self._count + len(block)
        if needed > len(self._rows):
            grown = np.empty((max(needed, 2 * len(self._rows)), *block.shape[1:]), block.dtype)
            grown[: self._count] = self.rows
            self._rows = grown
        self._rows[self._count : needed] = block
        self._count = needed
