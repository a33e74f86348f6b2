"""The gateway's process: ``python -m earvoice.gateway``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from earvoice.gateway.app import build_app
from earvoice.gateway.door import Door
from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.files import atomic_write
from earvoice.runtime.log import configure_logging
from earvoice.runtime.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from prometheus_client.core import Metric

EXIT_WRONG_SETTINGS = 2
_BACKLOG = 1024


class _DrainingServer(uvicorn.Server):
    """Lets running streams end, for as long as the grace lasts, before it stops."""

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door
        self._draining: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None:  # a second signal: now
            super().handle_exit(sig, frame)
            return
        self._loop.call_soon_threadsafe(self._begin_to_drain)

    def _begin_to_drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._door.drain()
        self.should_exit = True


class _Collector:
    def __init__(self, door: Door) -> None:
        self._door = door

    def collect(self) -> Iterator[Metric]:
        door = self._door
        yield GaugeMetricFamily(
            "earvoice_gateway_sockets", "Open connections.", value=door.socket_count
        )
        yield GaugeMetricFamily(
            "earvoice_gateway_speakers", "Running streams.", value=door.speaker_count
        )
        yield GaugeMetricFamily(
            "earvoice_gateway_readers", "Readers of streams.", value=door.directory.reader_count
        )
        yield CounterMetricFamily(
            "earvoice_gateway_refused", "Connections refused.", value=door.refused_count
        )


def main() -> int:
    try:
        settings = load_settings(GatewaySettings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_WRONG_SETTINGS
    configure_logging("gateway", settings.log_level)
    try:
        asyncio.run(_serve(settings))
    except OSError as error:
        sys.stderr.write(f"EARVOICE_GATEWAY_PORT = {settings.port}: {error.strerror}\n")
        return 1
    return 0


async def _serve(settings: GatewaySettings) -> None:
    door = Door(settings)
    listener = _listen(settings)
    config = uvicorn.Config(
        build_app(door),
        ws="websockets-sansio",
        ws_max_size=settings.max_message_bytes,
        timeout_graceful_shutdown=1,
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=settings.tls_certificate_file,
        ssl_keyfile=settings.tls_key_file,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = _DrainingServer(config, door)
    if settings.metrics_port:
        registry = CollectorRegistry()
        registry.register(_Collector(door))
        start_http_server(settings.metrics_port, settings.host, registry)
    host, port = listener.getsockname()[:2]
    logging.getLogger(__name__).info("serving", extra={"host": host, "port": port})
    if settings.address_file is not None:
        # The socket listens already: who comes early waits in its backlog.
        with atomic_write(settings.address_file) as partial:
            partial.write_text(f"{host}:{port}\n", encoding="utf8")
    await server.serve([listener])


def _listen(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
