"""One service's replicas: which there are, what they serve, and which one takes a session.

Addresses are given directly, or by names that are looked up repeatedly. The health of each is
watched, and one that serves is asked for its model. An address may also be a proxy in front of
several replicas, so each request to it may be answered by a different one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import decoder_service_pb2_grpc as decoder_grpc
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.api.v1 import types_pb2
from earvoice.policy.settings import NamedPort
from earvoice.runtime.errors import (
    BackendUnavailableError,
    EarvoiceError,
    ModelMismatchError,
    NotReadyError,
    SessionLimitError,
)
from earvoice.runtime.session_limit import RETRY_AFTER_MS, retry_schedule
from earvoice.runtime.tls import ChannelTls, TlsFileError
from earvoice.runtime.transport import bearer_metadata, open_channel

_LOG = logging.getLogger("earvoice.policy.backends")

LOOKUP_INTERVAL_S = 5.0
SHORTEST_LOOKUP_INTERVAL_S = 0.5
HEALTH_INTERVAL_S = 0.2
"""Between two checks of a replica that does not serve."""
SLOW_HEALTH_INTERVAL_S = 1.0
"""Between two checks of one that has no health service, or that has no TLS connection."""
DESCRIBE_TIMEOUT_S = 2.0
FULL_S = 1.0
"""How long a replica's answer that it is full is believed: asking again takes time from its
sessions. For that long, we do not notice when a session of another policy replica ends there."""
RETRY_INTERVAL_S = 0.5

REFUSALS = (
    SessionLimitError.reason,
    NotReadyError.reason,
    BackendUnavailableError.reason,
    ModelMismatchError.reason,
)
"""Reasons for refusal that other replicas may not have; the most helpful to a client first."""

_SERVING = health_pb2.HealthCheckResponse.SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_HEALTHLESS = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)
_OTHER_SERVICE = "is another service"
_PASSING = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
_UNCONNECTED = ("failed to connect", "errors resolving", "DNS resolution failed")
"""How the details of UNAVAILABLE begin where there is no connection at all."""

Metadata = tuple[tuple[str, str], ...]
Opened = TypeVar("Opened")


@dataclass(frozen=True)
class BackendAccess:
    """Credentials of our channels and calls; `tls` is None for plain connections."""

    tls: ChannelTls | None = None
    token: str = ""

    @property
    def metadata(self) -> Metadata:
        return bearer_metadata(self.token)

    def open_channel(self, address: str) -> grpc.aio.Channel:
        """Raises `TlsFileError` if a certificate, key or authority cannot be used."""
        return open_channel(address, tls=self.tls)

    def named(self, name: str) -> BackendAccess:
        """Return the same for addresses that a name resolved to: certificates bear the name."""
        if self.tls is None or self.tls.server_name:
            return self
        return replace(self, tls=replace(self.tls, server_name=name))


@dataclass(frozen=True)
class BackendKind:
    """The encoder or the decoder service.

    Attributes:
        describe: asks for the model, within a time limit in seconds.
    """

    name: str
    health_name: str
    open_call: Callable[[grpc.aio.Channel, Metadata], Any]
    describe: Callable[[grpc.aio.Channel, Metadata, float], Awaitable[Any]]


ENCODER = BackendKind(
    "encoder",
    encoder_pb.DESCRIPTOR.services_by_name["EncoderService"].full_name,
    lambda channel, metadata: encoder_grpc.EncoderServiceStub(channel).Encode(metadata=metadata),
    lambda channel, metadata, timeout_s: encoder_grpc.EncoderServiceStub(channel).DescribeModel(
        encoder_pb.EncoderServiceDescribeModelRequest(), metadata=metadata, timeout=timeout_s
    ),
)
DECODER = BackendKind(
    "decoder",
    decoder_pb.DESCRIPTOR.services_by_name["DecoderService"].full_name,
    lambda channel, metadata: decoder_grpc.DecoderServiceStub(channel).Decode(metadata=metadata),
    lambda channel, metadata, timeout_s: decoder_grpc.DecoderServiceStub(channel).DescribeModel(
        decoder_pb.DecoderServiceDescribeModelRequest(), metadata=metadata, timeout=timeout_s
    ),
)


class Replica:
    """One address: its channel, its health and the model it serves.

    Args:
        on_change: called when it becomes ready or stops being ready.

    Attributes:
        model: what it serves; None while it is not known to serve.
        trouble: why it will not serve as things are, fit for clients; empty if it may soon.
        is_listed: whether its address is still one of the service's.
    """

    def __init__(
        self,
        kind: BackendKind,
        address: str,
        access: BackendAccess,
        on_change: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self.address = address
        self._access = access
        self._on_change = on_change
        self._now_s = now_s
        self._channel = access.open_channel(address)
        self._watching: Any = None
        self._full: EarvoiceError | None = None
        self._full_until_s = 0.0
        self._warned_of: dict[str, str] | None = None
        self.model: types_pb2.ModelDescription | None = None
        self.trouble = ""
        self.is_listed = True
        self.session_count = 0

    @property
    def is_ready(self) -> bool:
        return self.model is not None and self.is_listed

    @property
    def full(self) -> EarvoiceError | None:
        """Its recent answer that it is full; None if it may be asked."""
        return self._full if self._now_s() < self._full_until_s else None

    def note_full(self, answer: EarvoiceError) -> None:
        self._full, self._full_until_s = answer, self._now_s() + FULL_S

    def open_call(self) -> Any:
        return self.kind.open_call(self._channel, self._access.metadata)

    def note_session_left(self) -> None:
        self.session_count -= 1
        self._full = None

    def mark_lost(self) -> None:
        """Count it as not ready until it reports again that it serves."""
        self._set_model(None)
        if self._watching is not None:
            self._watching.cancel()

    async def is_alive(self, timeout_s: float) -> bool:
        """Say whether it answers a health check, whatever the answer."""
        request = health_pb2.HealthCheckRequest(service=self.kind.health_name)
        try:
            await self._health.Check(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return error.code() in _HEALTHLESS
        return True

    async def watch(self) -> None:
        while True:
            try:
                await self._follow()
            except grpc.aio.AioRpcError as error:
                self._set_model(None)
                self._note_trouble(_trouble_of(error), error.code().name, error.details() or "")
                is_plain = self._access.tls is None
                await asyncio.sleep(HEALTH_INTERVAL_S if is_plain else SLOW_HEALTH_INTERVAL_S)
                await self._reopen()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Only the call was cancelled, by `mark_lost`.
            except Exception:  # noqa: BLE001 - one replica must not end the service
                self._set_model(None)
                _LOG.exception("not understood", extra=self._extra)
                await asyncio.sleep(SLOW_HEALTH_INTERVAL_S)

    async def close(self) -> None:
        await self._channel.close()

    @property
    def _health(self) -> Any:
        return health_pb2_grpc.HealthStub(self._channel)

    @property
    def _extra(self) -> dict[str, str]:
        return {"backend": self.kind.name, "address": self.address}

    async def _follow(self) -> None:
        request = health_pb2.HealthCheckRequest(service=self.kind.health_name)
        # Not waiting for a connection: what fails says why there is none.
        self._watching = self._health.Watch(request)
        try:
            async for answer in self._watching:
                if answer.status != _SERVING:
                    trouble = _OTHER_SERVICE if answer.status == _SERVICE_UNKNOWN else ""
                    self._note_trouble(trouble, "SERVICE_UNKNOWN", self.kind.health_name)
                    break
                await self._describe()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _HEALTHLESS:
                raise
            # A service without health is ready as long as it describes its model.
            while True:
                await self._describe()
                await asyncio.sleep(SLOW_HEALTH_INTERVAL_S)
        finally:
            self._watching.cancel()
        # Ask again instead of waiting for a change: behind a proxy another replica may answer.
        self._set_model(None)
        await asyncio.sleep(HEALTH_INTERVAL_S)

    async def _describe(self) -> None:
        """Ask each time: a service restarted at the same address may serve another model."""
        answer = await self.kind.describe(self._channel, self._access.metadata, DESCRIBE_TIMEOUT_S)
        self._note_trouble("")
        self._set_model(answer.model)

    def _note_trouble(self, trouble: str, status: str = "", details: str = "") -> None:
        self.trouble = trouble
        told = self._extra | {"status": status, "details": details} if trouble else None
        if told is not None and told != self._warned_of:
            _LOG.warning("replica %s", trouble, extra=told)
        self._warned_of = told

    def _set_model(self, model: types_pb2.ModelDescription | None) -> None:
        if model == self.model:
            return
        self.model = model
        state = "ready" if model is not None else "not ready"
        _LOG.info("replica %s", state, extra=self._extra)
        self._on_change()

    async def _reopen(self) -> None:
        """Read the certificates again, which may have been the problem."""
        if self._access.tls is None or self.session_count:
            return
        try:
            channel = self._access.open_channel(self.address)
        except TlsFileError as error:
            _LOG.warning("the certificates are not usable, the old stay: %s", error)
            return
        old, self._channel = self._channel, channel
        await old.close()


def _trouble_of(error: grpc.aio.AioRpcError) -> str:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return _OTHER_SERVICE
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return "refuses this server"
    if code not in _PASSING:
        return "answers with an error"
    # Where nobody listens, a process may be starting.
    if details.startswith(_UNCONNECTED) and "Connection refused" not in details:
        return "cannot be reached"
    return ""


async def look_up(named: NamedPort) -> list[str]:
    """Return ``host:port`` of every A and AAAA record, each once."""
    loop = asyncio.get_running_loop()
    name, port = named
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    hosts = (
        f"[{place[0]}]" if family == socket.AF_INET6 else f"{place[0]}"
        for family, _, _, _, place in found
    )
    return [f"{host}:{port}" for host in dict.fromkeys(hosts)]


class Replicas:
    def __init__(
        self,
        kind: BackendKind,
        target: tuple[Sequence[str], Sequence[NamedPort]],
        access: BackendAccess,
        on_change: Callable[[], None],
        addresses_of: Callable[[NamedPort], Awaitable[list[str]]] = look_up,
    ) -> None:
        self.kind = kind
        self._addresses, self._names = target
        self._access = access
        self._on_change = on_change
        self._addresses_of = addresses_of
        self._replicas: dict[str, Replica] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._found: dict[NamedPort, list[str]] = {}
        self._lookup_due = asyncio.Event()
        self._changed = asyncio.Event()
        self._next_retry_ms = retry_schedule()
        self._turn = 0

    @property
    def all(self) -> list[Replica]:
        return list(self._replicas.values())

    @property
    def trouble(self) -> str:
        return next((replica.trouble for replica in self.all if replica.trouble), "")

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for address in self._addresses:
                    self._add(group, address, self._access)
                while self._names:
                    await self._look_all_up(group)
                    await asyncio.sleep(SHORTEST_LOOKUP_INTERVAL_S)
                    await _wait_at_most(self._lookup_due, LOOKUP_INTERVAL_S)
                    self._lookup_due.clear()
        finally:
            for replica in self.all:
                await replica.close()

    def look_up_soon(self) -> None:
        self._lookup_due.set()

    def mark_lost(self, replica: Replica) -> None:
        """Count it as not ready until it serves again; look names up soon, for new replicas."""
        replica.mark_lost()
        self.look_up_soon()

    def ready(self, model_hash: str = "", last: Replica | None = None) -> list[Replica]:
        """Return the replicas that sessions may go to: fewest sessions first, ties in turn.

        Args:
            last: a replica to use only if there is no other.
        """
        self._turn += 1
        replicas = self.all
        start = self._turn % max(1, len(replicas))
        found = [
            replica
            for replica in (*replicas[start:], *replicas[:start])
            if replica.is_ready and replica.model and model_hash in ("", replica.model.hash)
        ]
        return sorted(found, key=lambda replica: (replica is last, replica.session_count))

    async def open(
        self,
        open_on: Callable[[Replica], Awaitable[Opened]],
        model_hash: str,
        wait_s: float,
        last: Replica | None = None,
        *,
        asks_again: bool = False,
    ) -> Opened:
        """Open something on the best replica, or on the next best if that refuses.

        Args:
            last: see `ready`.
            asks_again: whether to ask again within `wait_s` after all have refused, including those
                that were full a moment ago.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        refusals: list[EarvoiceError] = []
        while True:
            for replica in self.ready(model_hash, last):
                # It may have gone, its channel closed, while another one was asked.
                if not replica.is_ready:
                    continue
                if not asks_again and (full := replica.full) is not None:
                    refusals.append(full)
                    continue
                try:
                    return await open_on(replica)
                except EarvoiceError as error:
                    if not is_refusal(error):
                        raise
                    self._note_refusal(replica, error)
                    refusals.append(error)
            left_s = deadline_s - loop.time()
            if left_s <= 0 or (refusals and not asks_again):
                raise self._answer(refusals) if refusals else self._missing(wait_s)
            await _wait_at_most(self._changed, min(left_s, RETRY_INTERVAL_S))

    def _note_refusal(self, replica: Replica, error: EarvoiceError) -> None:
        told = {"backend": self.kind.name, "address": replica.address, "reason": error.reason}
        _LOG.info("session refused", extra=told)
        if error.reason == SessionLimitError.reason:
            replica.note_full(error)
        else:
            self.mark_lost(replica)

    def _answer(self, refusals: list[EarvoiceError]) -> EarvoiceError:
        """Return the most helpful refusal; clients are told to come back at different times."""
        refusal = min(refusals, key=lambda error: REFUSALS.index(error.reason))
        if refusal.reason != SessionLimitError.reason:
            return refusal
        wait_ms = max(refusal.retry_after_ms or 0, self._next_retry_ms())
        return SessionLimitError(refusal.message, retry_after_ms=wait_ms, **refusal.metadata)

    def _missing(self, wait_s: float) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"no {self.kind.name} was ready within {wait_s:g} s", retry_after_ms=RETRY_AFTER_MS
        )

    async def _look_all_up(self, group: asyncio.TaskGroup) -> None:
        for named in self._names:
            try:
                self._found[named] = await self._addresses_of(named)
            except OSError as error:
                # Keep the addresses found before: their health shows whether they serve.
                _LOG.warning("%s cannot be looked up: %s", named[0], error)
                continue
            try:
                for address in self._found[named]:
                    if address not in self._replicas:
                        self._add(group, address, self._access.named(named[0]))
            except TlsFileError as error:
                # They may just be being replaced: the next look-up tries again.
                _LOG.warning("the certificates are not usable for new replicas: %s", error)
        await self._unlist_all_but({*self._addresses}.union(*self._found.values()))

    async def _unlist_all_but(self, listed: set[str]) -> None:
        """Send no sessions to a replica that is no longer listed; forget it once it has none."""
        for address, replica in [*self._replicas.items()]:
            was_ready, replica.is_listed = replica.is_ready, address in listed
            if replica.is_ready != was_ready:
                self._note_change()
            if not replica.is_listed and not replica.session_count:
                self._watches.pop(address).cancel()
                del self._replicas[address]
                await replica.close()

    def _add(self, group: asyncio.TaskGroup, address: str, access: BackendAccess) -> None:
        replica = Replica(self.kind, address, access, self._note_change)
        self._replicas[address] = replica
        self._watches[address] = group.create_task(replica.watch())

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()


def is_refusal(error: EarvoiceError) -> bool:
    return error.reason in REFUSALS


async def _wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
