"""How many sessions a process takes at once, as configured or as measured, and how it drains."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from earvoice.runtime.authentication import current_tenant
from earvoice.runtime.errors import EarvoiceError, NotReadyError, SessionLimitError
from earvoice.runtime.machine import available_cpus, descriptor_limit, open_descriptors
from earvoice.runtime.settings import MOST_SESSIONS, ModelSettings

RETRY_AFTER_MS = 1000
EARLIEST_RETRY_S = 1.0
RETRY_INTERVAL_S = 0.25
LATEST_RETRY_S = 10.0

SPARE_DESCRIPTORS = 32
"""With fewer left, no session begins: the running ones may need them."""

TENANT_LIMIT = "TENANT_LIMIT"
"""Why a session beyond its tenant's limit is refused; its caller is told SESSION_LIMIT."""

_LOG = logging.getLogger("earvoice.runtime.session_limit")


class SessionLimit:
    """Counts sessions, refuses the one too many, and every one once it is closed.

    Args:
        limit: sessions at once, 1 or more; ``auto`` stands for 1 until it is set.
        tenant_limit: sessions of one tenant at once; 0 for no such limit.
        descriptors_left: how many files and connections the process may still open.

    Attributes:
        limit: as given; may be changed while sessions run, and none of them is ended.
        refused: sessions that were not taken, by the error's reason or ``TENANT_LIMIT``.
    """

    def __init__(
        self,
        limit: int | Literal["auto"],
        tenant_limit: int = 0,
        descriptors_left: Callable[[], int] = lambda: descriptor_limit() - open_descriptors(),
    ) -> None:
        self.limit = 1 if limit == "auto" else limit
        self._tenant_limit = tenant_limit
        self._descriptors_left = descriptors_left
        self._active_by_tenant: Counter[str] = Counter()
        self._full_tenants: set[str] = set()
        self._next_retry_ms = retry_schedule()
        self.active = 0
        self.refused: Counter[str] = Counter()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def admit(self) -> Iterator[None]:
        self.check()
        tenant = current_tenant()
        self.active += 1
        self._active_by_tenant[tenant] += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.active -= 1
            self._active_by_tenant -= Counter([tenant])
            self._full_tenants.discard(tenant)
            if self.active == 0:
                self._idle.set()

    def check(self) -> None:
        """Refuse a session that could not be admitted now, before its caller says what it wants."""
        if refusal := self._refusal(current_tenant()):
            reason, error = refusal
            self.refused[reason] += 1
            raise error

    async def drain(self) -> None:
        """Refuse new sessions and return when the last one has ended."""
        self._closed = True
        await self._idle.wait()

    def _refusal(self, tenant: str) -> tuple[str, EarvoiceError] | None:
        if self._closed:
            draining = NotReadyError("this server is draining", retry_after_ms=RETRY_AFTER_MS)
            return draining.reason, draining
        if self.active >= self.limit:
            return SessionLimitError.reason, self._full("sessions", self.limit)
        if self._tenant_limit and self._active_by_tenant[tenant] >= self._tenant_limit:
            self._note_full(tenant)
            return TENANT_LIMIT, self._full("sessions of this tenant", self._tenant_limit)
        if self._descriptors_left() < SPARE_DESCRIPTORS:
            return SessionLimitError.reason, self._full("file descriptors", descriptor_limit())
        return None

    def _note_full(self, tenant: str) -> None:
        """Log the first refusal since one of the tenant's sessions ended: many may follow."""
        if tenant not in self._full_tenants:
            self._full_tenants.add(tenant)
            limit = {"limit": self._tenant_limit}
            _LOG.warning("a tenant has all the sessions that it may have", extra=limit)

    def _full(self, what: str, limit: int) -> SessionLimitError:
        message = f"{limit} of {limit} {what} are taken"
        retry_after_ms = self._next_retry_ms()
        return SessionLimitError(message, retry_after_ms=retry_after_ms, limit=str(limit))


def retry_schedule(clock: Callable[[], float] = time.monotonic) -> Callable[[], int]:
    """Return a function that says how long the next refused caller is to wait, in ms.

    Every attempt takes time from the running sessions, so retries are spread out: one every
    `RETRY_INTERVAL_S`, however many wait. A place that becomes free is taken that soon, and a
    caller that waits alone waits `EARLIEST_RETRY_S`. Where so many wait that the last would come
    after `LATEST_RETRY_S`, times before that are drawn at random.
    """
    last_s = -LATEST_RETRY_S

    def next_ms() -> int:
        nonlocal last_s
        now_s = clock()
        wait_s = max(last_s + RETRY_INTERVAL_S - now_s, EARLIEST_RETRY_S)
        if wait_s > LATEST_RETRY_S:
            wait_s = random.uniform(EARLIEST_RETRY_S, LATEST_RETRY_S)  # noqa: S311 - no secret
        else:
            last_s = now_s + wait_s
        return round(1000 * wait_s)

    return next_ms


SegmentCost = tuple[float, float]
"""Engine time for the segments of sessions that are computed together: seconds that each session
adds, more than 0; seconds that they take however many they are, 0 or more."""


def fit_cost(once_s: float, one_s: float, many_s: float, many: int) -> SegmentCost:
    """Return the cost of segments that are partly computed together.

    A straight line through two measurements: of one session alone, and of several at once.

    Args:
        once_s: what each session computes alone, in seconds.
        many: how many sessions `many_s` was measured with, 2 or more.
    """
    slope_s = max(0.0, (many_s - one_s) / (many - 1))
    return once_s + slope_s, max(0.0, one_s - slope_s)


def session_count(cost: SegmentCost, segment_ms: int, busy_ratio: float) -> int:
    """Return how many sessions keep the engine no busier than this; 1 at least."""
    own_s, shared_s = cost
    available_s = busy_ratio * segment_ms / 1000 - shared_s
    return max(1, min(MOST_SESSIONS, int(available_s / own_s)))


def computation_clock(device: str, threads: int) -> Callable[[], float]:
    """Return the clock that best measures a computation, in seconds.

    A single thread's CPU time does not pass while other processes have the processor. For several
    threads or a GPU, elapsed time is what counts.
    """
    return time.thread_time if device == "cpu" and threads == 1 else time.perf_counter


def measured_limit(cost: SegmentCost, segment_ms: int, settings: ModelSettings) -> int:
    """Return, and log, the number of sessions for `SESSION_LIMIT=auto`.

    Each session asks for one segment in `segment_ms`. Where the engine has fewer processors than
    threads, it is that much slower.
    """
    cpus = available_cpus()
    share = min(1.0, cpus / settings.torch_threads)
    own_s, shared_s = cost
    count = session_count(cost, segment_ms, settings.target_busy_ratio * share)
    _LOG.info(
        "capacity measured",
        extra={
            "sessions": count,
            "segment_ms": segment_ms,
            "own_compute_ms": round(own_s * 1000, 1),
            "shared_compute_ms": round(shared_s * 1000, 1),
            "target_busy_ratio": settings.target_busy_ratio,
            "cpus": cpus,
        },
    )
    return count
