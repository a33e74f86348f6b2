"""What the machine, or the container, gives this process: processors, memory, descriptors."""

from __future__ import annotations

import ctypes
import os
import resource
from itertools import accumulate
from pathlib import Path

MOST_DESCRIPTORS = 2**30

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = {
    # Name of the hierarchy's folder: the file with its limit, the file with what is used.
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def available_cpus(cgroup: Path = _CGROUP) -> float:
    """Return a number of processors: those we may run on, or a container's limit if it is less."""
    cpus = float(len(os.sched_getaffinity(0)))
    # Version 2 has a line such as "150000 100000": microseconds of each period, or "max".
    parts = _text(cgroup / "cpu.max").split()
    quota = _ratio(*parts) if len(parts) == 2 else None  # noqa: PLR2004 - quota and period
    if quota is None:
        quota_us = _text(cgroup / "cpu" / "cpu.cfs_quota_us").strip()
        quota = _ratio(quota_us, _text(cgroup / "cpu" / "cpu.cfs_period_us").strip())
    return min(cpus, quota) if quota is not None else cpus


def _ratio(quota: str, period: str) -> float | None:
    """None for "max", -1 and what is not there: no limit."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def available_memory_bytes(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int | None:
    """Return the least that the machine and every enclosing control group have left.

    None where none of them says.
    """
    limits = [_machine_bytes(proc / "meminfo")]
    for group, hierarchy in _own_groups(proc / "self" / "cgroup"):
        root = cgroup / hierarchy
        # A container sees its own group at the root, whatever the path says. The groups around
        # a/b are a and a/b.
        enclosing = accumulate(group.strip("/").split("/"), "{}/{}".format)
        places = {root, *(root / part for part in enclosing)}
        limits += [_group_bytes(place, *_CGROUP_FILES[hierarchy]) for place in places]
    return min((limit for limit in limits if limit is not None), default=None)


def return_freed_memory() -> None:
    """Give the system what has been freed, which glibc keeps unless its `malloc_trim` is called.

    Takes tens of milliseconds where there is much. Does nothing with another C library.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)


def open_descriptors(proc: Path = _PROC) -> int:
    """Return how many are open; the limit if not even that can be looked up."""
    try:
        return sum(1 for _ in (proc / "self" / "fd").iterdir())
    except OSError:
        return descriptor_limit()


def _machine_bytes(meminfo: Path) -> int | None:
    for line in _text(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _own_groups(listing: Path) -> list[tuple[str, str]]:
    """(path, hierarchy) of the groups that limit this process's memory, of either version."""
    groups = []
    for line in _text(listing).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            groups.append((path, "memory" if controllers else ""))
    return groups


def _group_bytes(folder: Path, limit_name: str, used_name: str) -> int | None:
    limit, used = _text(folder / limit_name).strip(), _text(folder / used_name).strip()
    if not limit.isdigit() or not used.isdigit():
        return None
    # Pages of files that were read are given back when memory is short.
    cached = 0
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            cached = max(cached, int(value))
    return max(0, int(limit) - int(used) + cached)


def _text(path: Path) -> str:
    try:
        # A group's name may be in any encoding.
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        # Another system, or a group without a limit of its own: no text means no limit.
        return ""
