"""How much of the machine's processors this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_cpus(cgroup: Path = _CGROUP) -> float:
    """Return a number of processors: those we may run on, or a container's limit if it is less.

    Args:
        cgroup: where a container sees its own control group, of either version.
    """
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _quota_of_version_2(cgroup) or _quota_of_version_1(cgroup)
    return min(cpus, quota) if quota is not None else cpus


def _quota_of_version_2(cgroup: Path) -> float | None:
    """A line such as "150000 100000": microseconds of each period, or "max"."""
    parts = _text(cgroup / "cpu.max").split()
    return _ratio(*parts) if len(parts) == 2 else None  # noqa: PLR2004 - quota and period


def _quota_of_version_1(cgroup: Path) -> float | None:
    quota = _text(cgroup / "cpu" / "cpu.cfs_quota_us").strip()
    return _ratio(quota, _text(cgroup / "cpu" / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    """None for "max", -1 and what is not there: no limit."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
