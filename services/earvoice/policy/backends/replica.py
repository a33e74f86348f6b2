"""One address of a service: its channel, its health and the model it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from earvoice.api.v1 import types_pb2
from earvoice.policy.backends.access import BackendAccess
from earvoice.policy.backends.fullness import Fullness
from earvoice.policy.backends.kind import BackendKind
from earvoice.runtime.tls import TlsFileError

_LOG = logging.getLogger("earvoice.policy.backends")

PAUSE_S = 0.2
"""Between two looks at a replica that does not serve."""
LOOK_INTERVAL_S = 1.0
"""Between two looks at one that does not tell its health, or to which no TLS connection stands."""
DESCRIBE_TIMEOUT_S = 2.0

_SERVING = health_pb2.HealthCheckResponse.SERVING
_HEALTHLESS = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND)


class Replica:
    """A replica, or a proxy in front of several: every look at it may lead to another one.

    Args:
        kind: which service.
        address: gRPC target.
        access: how we are let in.
        on_change: called when it becomes ready, or is no longer.

    Attributes:
        model: that it serves, told by it; None while it is not known to serve.
        is_listed: whether its address is still one of the service's.
        session_count: sessions of ours on it.
        fullness: its answer to the last session, if that found no room.
    """

    def __init__(
        self, kind: BackendKind, address: str, access: BackendAccess, on_change: Callable[[], None]
    ) -> None:
        self.kind = kind
        self.address = address
        self._access = access
        self._on_change = on_change
        self._channel = access.open_channel(address)
        self._watching: Any = None
        self.model: types_pb2.ModelDescription | None = None
        self.is_listed = True
        self.session_count = 0
        self.fullness = Fullness()

    @property
    def is_ready(self) -> bool:
        """Whether sessions may come."""
        return self.model is not None and self.is_listed

    def open_call(self) -> Any:
        """Open a session's stream; grpc's call object."""
        return self.kind.open_call(self._channel, self._access.metadata)

    def doubt(self) -> None:
        """Take it for lost until it says anew that it serves."""
        self._tell(None)
        if self._watching is not None:
            self._watching.cancel()

    async def is_alive(self, timeout_s: float) -> bool:
        """Say whether it answers a question for its health, whatever it answers."""
        request = health_pb2.HealthCheckRequest(service=self.kind.health_name)
        try:
            await self._health.Check(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return error.code() in _HEALTHLESS
        return True

    async def watch(self) -> None:
        """Follow its health until cancelled."""
        while True:
            try:
                await self._follow()
            except grpc.aio.AioRpcError as error:
                self._tell(None)
                _LOG.debug("not ready", extra=self._extra | {"status": error.code().name})
                await asyncio.sleep(PAUSE_S if self._access.tls is None else LOOK_INTERVAL_S)
                await self._reopen()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Only the call was cancelled, by a doubt.

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    @property
    def _health(self) -> Any:
        return health_pb2_grpc.HealthStub(self._channel)

    @property
    def _extra(self) -> dict[str, str]:
        return {"backend": self.kind.name, "address": self.address}

    async def _follow(self) -> None:
        request = health_pb2.HealthCheckRequest(service=self.kind.health_name)
        # With TLS, to wait may be in vain: the certificates that we show may be the trouble.
        self._watching = self._health.Watch(request, wait_for_ready=self._access.tls is None)
        try:
            async for answer in self._watching:
                if answer.status != _SERVING:
                    break
                await self._describe()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _HEALTHLESS:
                raise
            await self._look_again_and_again()
        finally:
            self._watching.cancel()
        # Asked anew instead of waited for: behind a proxy another replica may answer.
        self._tell(None)
        await asyncio.sleep(PAUSE_S)

    async def _look_again_and_again(self) -> None:
        """Take a service without health for ready as long as it describes its model."""
        while True:
            await self._describe()
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _describe(self) -> None:
        """Ask each time: what starts again on the same address may serve another model."""
        self._tell(
            await self.kind.describe(self._channel, self._access.metadata, DESCRIBE_TIMEOUT_S)
        )

    def _tell(self, model: types_pb2.ModelDescription | None) -> None:
        if model == self.model:
            return
        self.model = model
        state = "ready" if model is not None else "not ready"
        _LOG.info("replica %s", state, extra=self._extra)
        self._on_change()

    async def _reopen(self) -> None:
        """Read the certificates again, which may have been the trouble."""
        if self._access.tls is None or self.session_count:
            return
        try:
            channel = self._access.open_channel(self.address)
        except TlsFileError as error:
            _LOG.warning("the certificates are not usable, the old stay: %s", error)
            return
        old, self._channel = self._channel, channel
        await old.close()
