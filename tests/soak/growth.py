"""What processes hold and spend while something runs, and whether it grows."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

Tell = Callable[[str], None]

# Generous: another process may take the processor, and allocators keep what they once had.
MOST_GROWTH_OF_COMPUTATION = 1.5
MOST_GROWTH_OF_MEMORY = 1.10
MEBIBYTE = 2**20
SPARE_BYTES = 20 * MEBIBYTE
SPARE_HANDLES = 3


def _counts() -> dict[str, list[int]]:
    return defaultdict(list)


@dataclass
class Growth:
    """Samples of processes, in the order they were taken."""

    resident_bytes: dict[str, list[int]] = field(default_factory=_counts)
    handles: dict[str, list[int]] = field(default_factory=_counts)
    threads: dict[str, list[int]] = field(default_factory=_counts)
    cpu_s: list[float] = field(default_factory=list)

    def note(self, processes: Mapping[str, psutil.Process]) -> None:
        for service, process in processes.items():
            self.resident_bytes[service].append(process.memory_info().rss)
            self.handles[service].append(process.num_fds())
            self.threads[service].append(process.num_threads())
        times = [process.cpu_times() for process in processes.values()]
        self.cpu_s.append(sum(spent.user + spent.system for spent in times))

    def assert_cost_is_flat(self, segments_between: int, tell: Tell) -> None:
        """A segment's processor time in the last third is what it was at first."""
        spent_s = [after - before for before, after in itertools.pairwise(self.cpu_s)]
        first, last = (seconds * 1000 / segments_between for seconds in thirds(spent_s))
        tell(f"processor time a segment: {first:.1f} ms in the first third, {last:.1f} in the last")
        assert last <= first * MOST_GROWTH_OF_COMPUTATION + 1.0

    def assert_nothing_is_held(self, tell: Tell) -> None:
        """Memory, handles and threads in the last third are what they were at first."""
        for service, resident in self.resident_bytes.items():
            first, last = thirds(resident)
            tell(f"{service}: {first / MEBIBYTE:.0f} MiB in the first third, {last / MEBIBYTE:.0f}")
            assert last <= first * MOST_GROWTH_OF_MEMORY + SPARE_BYTES, service
            for name, counts in (("handles", self.handles), ("threads", self.threads)):
                first, last = thirds(counts[service])
                tell(f"{service}: {first:.0f} {name} in the first third, {last:.0f}")
                assert last <= first + SPARE_HANDLES, (service, name)


def thirds(values: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and the last third."""
    size = len(values) // 3
    assert size
    return statistics.median(values[:size]), statistics.median(values[-size:])
