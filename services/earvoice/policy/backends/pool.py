"""Where a session goes among the replicas of one service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from earvoice.policy.backend_target import BackendTarget
from earvoice.policy.backends.access import BackendAccess
from earvoice.policy.backends.kind import BackendKind
from earvoice.policy.backends.loss import RETRY_AFTER_MS, is_refusal, most_helpful
from earvoice.policy.backends.replica import Replica
from earvoice.policy.backends.roster import ReplicaRoster, wait_at_most
from earvoice.runtime.errors import BackendUnavailableError, EarvoiceError, SessionLimitError
from earvoice.runtime.return_times import ReturnTimes

_LOG = logging.getLogger("earvoice.policy.backends")

RETRY_INTERVAL_S = 0.5

Opened = TypeVar("Opened")


class ReplicaPool:
    """One service's replicas.

    Args:
        kind: which service.
        target: where they are.
        access: how we are let in.
        on_change: called when one becomes ready, or is no longer.
    """

    def __init__(
        self,
        kind: BackendKind,
        target: BackendTarget,
        access: BackendAccess,
        on_change: Callable[[], None],
    ) -> None:
        self.kind = kind
        self._roster = ReplicaRoster(kind, target, access, self._note_change)
        self._on_change = on_change
        self._return_times = ReturnTimes()
        self._turn = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Look replicas up and follow their health until cancelled."""
        await self._roster.run()

    def ready(self, model_hash: str = "", last: Replica | None = None) -> list[Replica]:
        """Return the replicas that sessions may go to: fewest sessions first, else in turn.

        Args:
            model_hash: that they must serve; empty for any.
            last: a replica that is taken only where there is no other.
        """
        self._turn += 1
        replicas = self._roster.replicas
        start = self._turn % max(1, len(replicas))
        found = [
            replica
            for replica in (*replicas[start:], *replicas[:start])
            if replica.is_ready and replica.model and model_hash in ("", replica.model.hash)
        ]
        return sorted(found, key=lambda replica: (replica is last, replica.session_count))

    def doubt(self, replica: Replica) -> None:
        """Take a replica for lost until it says that it serves; others may have come by now."""
        replica.doubt()
        self._roster.look_up_soon()

    async def open(
        self,
        open_on: Callable[[Replica], Awaitable[Opened]],
        model_hash: str,
        wait_s: float,
        last: Replica | None = None,
        *,
        insists: bool = False,
    ) -> Opened:
        """Open something on the best replica, or on the next best if that refuses.

        One that was full a moment ago is not asked, unless this session insists.

        Args:
            open_on: does it.
            model_hash: that the replica must serve.
            wait_s: how long to wait for a ready replica, in seconds.
            last: a replica that is taken only where there is no other.
            insists: whether to ask again within that time after all have refused.

        Raises:
            EarvoiceError: the most helpful of the refusals; or what is no refusal.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        refusal: EarvoiceError | None = None
        while True:
            for replica in self.ready(model_hash, last):
                # It may have gone, its channel closed, while another one was asked.
                if not replica.is_ready:
                    continue
                full = replica.fullness.answer
                if full is not None and not insists:
                    refusal = most_helpful(refusal, full)
                    continue
                try:
                    return await open_on(replica)
                except EarvoiceError as error:
                    refusal = most_helpful(refusal, self._refused(replica, error))
            left_s = deadline_s - loop.time()
            if left_s <= 0 or (refusal is not None and not insists):
                raise self._told(refusal) if refusal is not None else self._missing(wait_s)
            await wait_at_most(self._changed, min(left_s, RETRY_INTERVAL_S))

    def _refused(self, replica: Replica, error: EarvoiceError) -> EarvoiceError:
        """Return a refusal, and draw from it what it says about the replica."""
        if not is_refusal(error):
            raise error
        told = {"backend": self.kind.name, "address": replica.address, "reason": error.reason}
        _LOG.info("session refused", extra=told)
        if error.reason == SessionLimitError.reason:
            replica.fullness.note(error)
        else:
            self.doubt(replica)
        return error

    def _told(self, refusal: EarvoiceError) -> EarvoiceError:
        """Return a refusal as the client gets it: each is to come back at a time of its own."""
        if refusal.reason != SessionLimitError.reason:
            return refusal
        wait_ms = max(refusal.retry_after_ms or 0, self._return_times.next_ms())
        return SessionLimitError(refusal.message, retry_after_ms=wait_ms, **refusal.metadata)

    def _missing(self, wait_s: float) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"no {self.kind.name} was ready within {wait_s:g} s", retry_after_ms=RETRY_AFTER_MS
        )

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()
