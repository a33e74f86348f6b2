"""A session's place on a replica, and on another one when that is lost or leaves."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from earvoice.policy.backends.call import BackendCall
from earvoice.policy.backends.loss import is_loss
from earvoice.policy.backends.patience import Patience
from earvoice.policy.backends.pool import ReplicaPool
from earvoice.policy.backends.replay_budget import ReplayBudget
from earvoice.policy.backends.replica import Replica
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import BackendUnavailableError, EarvoiceError

_LOG = logging.getLogger("earvoice.policy.backends")

Stream = TypeVar("Stream")
Result = TypeVar("Result")


@dataclass(frozen=True)
class SessionOpening:
    """What a session is opened with, wherever it is.

    Attributes:
        options: what the stream asked for.
        model_hash: of the model that it stays with.
        session_id: as logs have it.
    """

    options: StreamOptions
    model_hash: str
    session_id: str


class Seat(Generic[Stream]):
    """One session's stream to one service.

    Args:
        pool: the service's replicas.
        session: what it is opened with.
        make_call: opens the transport's stream on a replica.
        open_stream: opens the session on it.
        budget: counts losses and replays.
        patience: for replicas.

    Attributes:
        replay_count: how often the session went on elsewhere after a loss.
    """

    def __init__(
        self,
        pool: ReplicaPool,
        session: SessionOpening,
        make_call: Callable[[Replica], BackendCall],
        open_stream: Callable[[BackendCall], Awaitable[Stream]],
        budget: ReplayBudget,
        patience: Patience,
    ) -> None:
        self._pool = pool
        self._session = session
        self._make_call = make_call
        self._open_stream = open_stream
        self._budget = budget
        self._patience = patience
        self._place: _Place[Stream] | None = None
        self.replay_count = 0

    @property
    def stream(self) -> Stream:
        """The session on the replica where it is now.

        Raises:
            BackendUnavailableError: it has none; the reason was told before.
        """
        if self._place is None:
            raise BackendUnavailableError(f"the session has no {self._pool.kind.name}")
        return self._place.stream

    async def take(self) -> None:
        """Open the session.

        Raises:
            EarvoiceError: no replica took it.
        """
        self._place = await self._pool.open(
            self._sit, self._session.model_hash, self._patience.opening_s
        )

    async def replace(self, error: EarvoiceError) -> None:
        """Open the session on another replica after a failure.

        Args:
            error: the failure.

        Raises:
            EarvoiceError: the failure itself if it is final, or why there is no other replica.
        """
        if not is_loss(error):
            raise error
        lost = self._place.replica if self._place is not None else None
        self.cancel()
        if lost is not None:
            self._pool.doubt(lost)
        _LOG.warning("replica lost", extra=self._extra(lost) | {"error": error.message})
        self._budget.spend(self._pool.kind.name)
        self._place = await self._pool.open(
            self._sit,
            self._session.model_hash,
            self._patience.replacement_s,
            lost,
            insists=True,
        )
        self.replay_count += 1
        self._budget.note_replay(self._pool.kind.name)
        _LOG.info("session goes on", extra=self._extra(self._place.replica))

    async def run_elsewhere(
        self, error: EarvoiceError, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Return the result of work that has failed here, done on another replica.

        Args:
            error: the failure.
            work: begins from nothing on a session just opened.

        Raises:
            EarvoiceError: see `replace`.
        """
        while True:
            await self.replace(error)
            try:
                return await work()
            except EarvoiceError as another:
                error = another

    async def move(self) -> None:
        """Leave a replica that is no longer ready for one that is; nothing is lost by that.

        Called where the replica holds nothing that is still needed.
        """
        place = self._place
        if place is None or place.replica.is_ready or not self._others():
            return
        try:
            moved = await self._pool.open(self._sit, self._session.model_hash, 0.0)
        except EarvoiceError as error:
            # It stays where it is, for as long as that lets it.
            told = self._extra(place.replica) | {"error": error.message}
            _LOG.info("session not moved", extra=told)
            return
        self.cancel()
        self._place = moved
        _LOG.info("session moved", extra=self._extra(moved.replica))

    async def leave(self) -> None:
        """End the session and wait until the replica has, too.

        Raises:
            EarvoiceError: it ended badly, by no loss: everything was answered before.
        """
        if self._place is None:
            return
        try:
            await self._place.call.close()
        except EarvoiceError as error:
            if not is_loss(error):
                raise
            _LOG.info("replica lost at the end", extra=self._extra(self._place.replica))
        self.cancel()

    def cancel(self) -> None:
        """End the session at once; void where it has ended."""
        if self._place is not None:
            self._place.call.cancel()
            self._place.replica.session_count -= 1
            self._place.replica.fullness.forget()
            self._place = None

    def _others(self) -> bool:
        return bool(self._pool.ready(self._session.model_hash))

    async def _sit(self, replica: Replica) -> _Place[Stream]:
        call = self._make_call(replica)
        replica.session_count += 1
        try:
            return _Place(replica, call, await self._open_stream(call))
        except BaseException:
            call.cancel()
            replica.session_count -= 1
            raise

    def _extra(self, replica: Replica | None) -> dict[str, str]:
        return {
            "session_id": self._session.session_id,
            "backend": self._pool.kind.name,
            "address": replica.address if replica is not None else "",
        }


@dataclass(frozen=True)
class _Place(Generic[Stream]):
    replica: Replica
    call: BackendCall
    stream: Stream
