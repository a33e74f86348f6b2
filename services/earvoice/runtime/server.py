"""A service's process: read its settings, bind, report its health, drain on SIGTERM, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from earvoice.runtime.authentication import Authenticator
from earvoice.runtime.bootstrap import cannot_listen
from earvoice.runtime.files import atomic_write
from earvoice.runtime.interceptor import DISCARD_TIMEOUT_S, StatusInterceptor
from earvoice.runtime.machine import descriptor_limit
from earvoice.runtime.settings import (
    ServiceSettings,
    address_of,
)
from earvoice.runtime.tls import ServerTls, TlsFileError
from earvoice.runtime.transport import (
    MESSAGE_LIMIT_BYTES,
    Options,
    server_credentials,
    server_options,
)

_LOG = logging.getLogger("earvoice.runtime.server")

STATUS_FLUSH_S = DISCARD_TIMEOUT_S + 0.5
"""How long the last statuses may take to go out once everything else has ended: longer than callers
that are still sending are listened to."""

MOST_CONNECTIONS = 65_536
RESERVED_DESCRIPTORS = 128
"""Kept for everything but connections, but never more than half of all."""

Drain = Callable[[float], Awaitable[None]]


class ServiceServer:
    """One process's server.

    Args:
        service_names: full names of the services added to ``grpc_server``; health is set for
            each, and for the empty name; health's own name is SERVING as long as the process runs.
        authenticator: identifies callers; None lets in everybody who reaches us.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        service_names: Sequence[str],
        message_limit_bytes: int = MESSAGE_LIMIT_BYTES,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._settings = settings
        self._service_names = ["", *service_names]
        self._health = health.aio.HealthServicer()
        self._address: str | None = None
        self.draining = asyncio.Event()
        self.grpc_server = grpc.aio.server(
            interceptors=[
                StatusInterceptor(
                    settings.write_timeout_ms / 1000,
                    authenticator,
                    settings.idle_timeout_ms / 1000,
                )
            ],
            options=[*server_options(message_limit_bytes), *_connection_limits(settings)],
        )
        self._health_server = grpc.aio.server(options=server_options(message_limit_bytes))
        for server in (self.grpc_server, self._health_server):
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if settings.reflection:
            names = [*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self.grpc_server)

    async def start(self) -> int:
        """Listen, still NOT_SERVING, and return the port."""
        await self.set_serving(serving=False)
        # For liveness probes, not readiness: a draining server must not be killed.
        await self._health.set(health.SERVICE_NAME, health_pb2.HealthCheckResponse.SERVING)
        settings, tls = self._settings, self._settings.tls
        port = _bind(self.grpc_server, settings, "port", tls)
        self._address = address_of(settings.host, port)
        if settings.health_port:
            _bind(self._health_server, settings, "health_port")
            await self._health_server.start()
        await self.grpc_server.start()
        _LOG.info("listening", extra={"address": self._address, "tls": tls is not None})
        return port

    async def set_serving(self, *, serving: bool) -> None:
        """Set the health of every service; write the address file when it begins to serve.

        A draining server never serves again.
        """
        serving = serving and not self.draining.is_set()
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in self._service_names:
            await self._health.set(name, value)
        if serving and self._address and self._settings.address_file:
            with atomic_write(self._settings.address_file) as partial:
                partial.write_text(self._address, encoding="utf8")
        if serving:
            _LOG.info("serving", extra={"address": self._address})

    async def serve_until_stopped(self, on_drain: Drain) -> None:
        """Set SERVING, then ``run_until_stopped``; signals are handled before SERVING shows."""
        self._take_signals()
        await self.set_serving(serving=True)
        await self.run_until_stopped(on_drain)

    async def run_until_stopped(self, on_drain: Drain) -> None:
        """Run until SIGTERM or SIGINT, then drain and stop.

        Args:
            on_drain: awaited with the grace in seconds, after NOT_SERVING has been set; it
                returns when every session has ended. The server stops then, or when the grace
                has passed.
        """
        self._take_signals()
        await self.draining.wait()
        grace_s = self._settings.drain_grace_ms / 1000
        _LOG.info("draining", extra={"grace_s": grace_s})
        await self.set_serving(serving=False)
        try:
            # Even without grace, sessions are notified: `wait_for` would not even start `on_drain`.
            async with asyncio.timeout(grace_s):
                await on_drain(grace_s)
        except TimeoutError:
            _LOG.warning("sessions still running after the grace", extra={"grace_s": grace_s})
        # A session that has ended may still be sending its status.
        await self.stop(grace_s=STATUS_FLUSH_S)
        _LOG.info("stopped")

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self.draining.set)

    async def stop(self, grace_s: float = 0) -> None:
        """Close every connection; does nothing if that has been done."""
        await self.grpc_server.stop(grace_s)
        await self._health_server.stop(grace=0)


def _connection_limits(settings: ServiceSettings) -> Options:
    """Return options that keep connections from taking all of the process's descriptors."""
    limit = descriptor_limit()
    most = min(MOST_CONNECTIONS, limit - min(RESERVED_DESCRIPTORS, limit // 2))
    return [
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.max_connection_idle_ms", settings.connection_idle_ms),
    ]


def _bind(
    server: grpc.aio.Server, settings: ServiceSettings, field: str, tls: ServerTls | None = None
) -> int:
    port: int = getattr(settings, field)
    try:
        _check_address(settings.host, port)
        address = address_of(settings.host, port)
        if tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, server_credentials(tls))
    except TlsFileError:
        raise
    except (OSError, RuntimeError) as error:
        raise cannot_listen(settings, field, error) from error


def _check_address(host: str, port: int) -> None:
    """Bind a socket as gRPC would, because gRPC does not say why it cannot."""
    family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(place)
