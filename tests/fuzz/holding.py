"""What processes hold, and whether they give back what an attack made them take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

MOST_GROWTH_OF_MEMORY = 1.10
MEBIBYTE = 2**20
# The transport's pools keep some of what messages of 5 MiB made them take, more or less of it.
SPARE_BYTES = 64 * MEBIBYTE
SPARE_HANDLES = 3


@dataclass(frozen=True)
class Holding:
    """What one process holds now."""

    resident_bytes: int
    handles: int
    threads: int

    def is_about(self, before: Holding) -> bool:
        """Whether it is no more than before, but for what allocators and pools keep."""
        most_bytes = before.resident_bytes * MOST_GROWTH_OF_MEMORY + SPARE_BYTES
        return (
            self.resident_bytes <= most_bytes
            and self.handles <= before.handles + SPARE_HANDLES
            and self.threads <= before.threads + SPARE_HANDLES
        )

    def __str__(self) -> str:
        mebibytes = self.resident_bytes / MEBIBYTE
        return f"{mebibytes:.0f} MiB, {self.handles} handles, {self.threads} threads"


def look(processes: Mapping[str, psutil.Process]) -> dict[str, Holding]:
    """Say what each service holds."""
    return {
        service: Holding(process.memory_info().rss, process.num_fds(), process.num_threads())
        for service, process in processes.items()
    }
