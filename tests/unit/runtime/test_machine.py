"""What the kernel says of processors and memory, and of a container's limits."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil
import pytest

from earvoice.runtime.machine import (
    available_cpus,
    available_memory_bytes,
    return_freed_memory,
)

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, ALL),
        ({"cpu.max": "max 100000\n"}, ALL),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": f"{ALL + 1}00000 100000\n"}, ALL),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, ALL),
        ({"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.25),
    ],
    ids=[
        "nothing",
        "2: no limit",
        "2: half",
        "2: more than there are",
        "1: no limit",
        "1: quarter",
    ],
)
def test_a_limit_counts_where_it_is_less_than_the_machine(tmp_path: Path, files, cpus):
    """Of either version of control groups."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert available_cpus(tmp_path) == cpus


MEBIBYTE = 2**20


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with 100 MiB left, and a process in group a/b of the newer version."""
    _write(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 204800 kB\nMemAvailable: 102400 kB\n",
            "proc/self/cgroup": "0::/a/b\n",
        },
    )
    return tmp_path


def _available(machine: Path) -> int | None:
    return available_memory_bytes(machine / "proc", machine / "groups")


def test_the_machine_alone(machine: Path) -> None:
    """Without a group's limit it is what the kernel says."""
    assert _available(machine) == 100 * MEBIBYTE


@pytest.mark.parametrize("group", ["", "a/", "a/b/"])
def test_any_enclosing_group_limits(machine: Path, group: str) -> None:
    """The limit of the own group, of one around it, or of the root that a container sees."""
    limits = {"memory.max": f"{64 * MEBIBYTE}", "memory.current": f"{40 * MEBIBYTE}"}
    _write(machine / "groups", {f"{group}{name}": text for name, text in limits.items()})
    assert _available(machine) == 24 * MEBIBYTE


def test_pages_of_files_do_not_count(machine: Path) -> None:
    """What the kernel would give back at once is left, too."""
    _write(
        machine / "groups/a",
        {
            "memory.max": f"{64 * MEBIBYTE}",
            "memory.current": f"{60 * MEBIBYTE}",
            "memory.stat": f"anon 1\ninactive_file {50 * MEBIBYTE}\n",
        },
    )
    assert _available(machine) == 54 * MEBIBYTE


@pytest.mark.parametrize("name", ["müller".encode(), b"m\xfcller"], ids=["UTF-8", "Latin-1"])
def test_a_group_may_have_any_name(machine: Path, name: bytes) -> None:
    """Of any letters, in any encoding."""
    (machine / "proc/self/cgroup").write_bytes(b"0::/" + name + b"\n")
    limits = {"memory.max": f"{64 * MEBIBYTE}", "memory.current": f"{40 * MEBIBYTE}"}
    _write(machine / "groups" / os.fsdecode(name), limits)
    assert _available(machine) == 24 * MEBIBYTE


def test_no_limit_is_none(machine: Path) -> None:
    """A group may say that it has no limit."""
    _write(machine / "groups/a/b", {"memory.max": "max\n", "memory.current": "1\n"})
    assert _available(machine) == 100 * MEBIBYTE


def test_the_older_version(machine: Path) -> None:
    """Groups of the first version have a folder and names of their own."""
    _write(
        machine,
        {
            "proc/self/cgroup": "5:cpu,memory:/x\n4:pids:/y\n",
            "groups/memory/x/memory.limit_in_bytes": f"{64 * MEBIBYTE}\n",
            "groups/memory/x/memory.usage_in_bytes": f"{4 * MEBIBYTE}\n",
        },
    )
    assert _available(machine) == 60 * MEBIBYTE


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    """Where there are no such files there is no number, and no guess."""
    assert _available(tmp_path) is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library's allocator")
def test_what_was_freed_goes_back_to_the_system():
    """Also what lies below something that is still used."""
    blocks = [bytearray(b"x" * 100_000) for _ in range(1000)]
    kept = blocks[::100]
    del blocks
    held_bytes = psutil.Process().memory_info().rss
    return_freed_memory()
    assert psutil.Process().memory_info().rss < held_bytes - 80_000_000
    assert len(kept) == 10
