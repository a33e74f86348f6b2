"""How much memory this process may still take."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

_PROC = Path("/proc")
_CGROUP_FILES = {
    # Name of the hierarchy's folder: the file with its limit, the file with what is used.
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def available_memory_bytes(proc: Path = _PROC, cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the least of what the machine and every enclosing control group leave.

    Args:
        proc: where the kernel's process files are.
        cgroup: where control groups are.

    Returns:
        Bytes; None where the system does not say.
    """
    limits = [_machine_bytes(proc / "meminfo")]
    for group, hierarchy in _own_groups(proc / "self" / "cgroup"):
        root = cgroup / hierarchy
        # A container sees its own group at the root, whatever the path says.
        places = {root, *(root / part for part in _enclosing(group))}
        limits += [_group_bytes(place, *_CGROUP_FILES[hierarchy]) for place in places]
    return min((limit for limit in limits if limit is not None), default=None)


def _enclosing(group: str) -> list[str]:
    """A group's path and those of the groups around it: a/b gives a and a/b."""
    return list(accumulate(group.strip("/").split("/"), "{}/{}".format))


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
        return path.read_text(encoding="ascii")
    except OSError:
        # Another system, or a group without a limit of its own: it says nothing, and that is told.
        return ""
