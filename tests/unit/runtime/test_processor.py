"""Processors that a container may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from earvoice.runtime.processor import available_cpus

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
