"""How long a computation takes when nothing disturbs it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def best_ms(compute: Callable[[], object], rounds: int) -> float:
    """The shortest of some rounds, after one that does not count, in milliseconds.

    With one thread the processor's time is counted, so that other processes disturb less; with
    more, time on the wall.
    """
    clock_s = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    compute()
    shortest_s = float("inf")
    for _ in range(rounds):
        began_s = clock_s()
        compute()
        shortest_s = min(shortest_s, clock_s() - began_s)
    return shortest_s * 1000
