"""How many live sessions an engine bears, from what their segments cost it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from earvoice.runtime.model_facts import ModelFacts
from earvoice.runtime.model_settings import ModelSettings
from earvoice.runtime.processor import available_cpus

_LOG = logging.getLogger("earvoice.runtime.capacity")

MOST_SESSIONS = 10_000


@dataclass(frozen=True)
class SegmentCost:
    """What the segments of sessions that are computed together take of the engine's time.

    Attributes:
        own_s: seconds that each session adds, more than 0.
        shared_s: seconds that they take however many they are, 0 or more.
    """

    own_s: float
    shared_s: float = 0.0

    def session_count(self, segment_ms: int, busy_ratio: float) -> int:
        """Return how many sessions keep the engine no busier than this; 1 at least.

        Args:
            segment_ms: each session asks for one segment in this time.
            busy_ratio: share of the engine's time, more than 0, at most 1.
        """
        available_s = busy_ratio * segment_ms / 1000 - self.shared_s
        return max(1, min(MOST_SESSIONS, int(available_s / self.own_s)))


def fit_cost(once_s: float, one_s: float, many_s: float, many: int) -> SegmentCost:
    """Return the cost of segments of which a part is computed in common.

    A straight line through two measurements: of one session alone, and of several at once.

    Args:
        once_s: what each session computes alone, in seconds.
        one_s: the common part for one session.
        many_s: the common part for several.
        many: how many those were, 2 or more.
    """
    slope_s = max(0.0, (many_s - one_s) / (many - 1))
    return SegmentCost(once_s + slope_s, max(0.0, one_s - slope_s))


def computation_clock(device: str, threads: int) -> Callable[[], float]:
    """Return the clock that tells best, in seconds, what a computation takes.

    A single thread's own time does not pass while other processes have the processor. What several
    threads or a GPU do takes the time that passes.

    Args:
        device: `cpu` or another.
        threads: of one computation.
    """
    return time.thread_time if device == "cpu" and threads == 1 else time.perf_counter


def bearable_sessions(cost: SegmentCost, facts: ModelFacts, settings: ModelSettings) -> int:
    """Return, and log, the number of sessions for `SESSION_LIMIT=auto`.

    Args:
        cost: as measured.
        facts: whose segment duration a live session is expected to have.
        settings: how busy the engine may be. Where its threads have fewer processors, it is that
            much slower.
    """
    cpus = available_cpus()
    share = min(1.0, cpus / settings.torch_threads)
    count = cost.session_count(facts.default_segment_ms, settings.target_busy_ratio * share)
    _LOG.info(
        "capacity measured",
        extra={
            "sessions": count,
            "segment_ms": facts.default_segment_ms,
            "own_compute_ms": round(cost.own_s * 1000, 1),
            "shared_compute_ms": round(cost.shared_s * 1000, 1),
            "target_busy_ratio": settings.target_busy_ratio,
            "cpus": cpus,
        },
    )
    return count
