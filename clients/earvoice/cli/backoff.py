"""How long to wait before a child that died is started again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """A wait that doubles with every quick death in a row.

    Attributes:
        first_s: wait after the first death.
        limit_s: longest wait.
        calm_s: a child that lived this long starts the row anew.
    """

    first_s: float = 0.5
    limit_s: float = 30.0
    calm_s: float = 60.0

    def delay_s(self, deaths_in_a_row: int) -> float:
        """Return the wait after so many deaths, 1 or more."""
        # The exponent is bounded: 2.0 ** 1100 overflows after a bad weekend.
        return min(self.first_s * 2.0 ** min(deaths_in_a_row - 1, 30), self.limit_s)

    def count(self, deaths_in_a_row: int, lived_s: float) -> int:
        """Return the length of the row with one more death, after a life of ``lived_s``."""
        return 1 if lived_s >= self.calm_s else deaths_in_a_row + 1
