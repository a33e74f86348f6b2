"""The gateway's process: ``python -m earvoice.gateway``."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from earvoice.gateway import audiosocket
from earvoice.gateway.app import build_app
from earvoice.gateway.door import Door
from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.bootstrap import cannot_listen, run_service
from earvoice.runtime.files import atomic_write
from earvoice.runtime.settings import address_of
from earvoice.runtime.tls import ServerTls

_BACKLOG = 1024
_GONE_MS = 40_000


class _DrainingServer(uvicorn.Server):
    """Gives running streams the drain grace to end before it stops."""

    def __init__(
        self, config: uvicorn.Config, door: Door, calls: asyncio.Server | None = None
    ) -> None:
        super().__init__(config)
        self._door = door
        self._calls = calls
        self._draining: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        else:  # a second signal stops it at once
            self.should_exit = True

    async def _drain(self) -> None:
        if self._calls is not None:
            self._calls.close()  # what runs goes on; an exchange dials elsewhere
        await self._door.drain()
        self.should_exit = True


def main() -> int:
    return run_service("gateway", GatewaySettings, _serve)


async def _serve(settings: GatewaySettings) -> None:
    door = Door(settings)
    if settings.tls_certificate_file is not None and settings.tls_key_file is not None:
        # Before anybody is told that we listen.
        ServerTls(settings.tls_certificate_file, settings.tls_key_file).check()
    listener = listen(settings)
    calls = await _serve_calls(door) if settings.audiosocket_port else None
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    address = address_of(*listener.getsockname()[:2])
    uses_tls = settings.tls_certificate_file is not None
    logging.getLogger(__name__).info("listening", extra={"address": address, "tls": uses_tls})
    if settings.address_file is not None:
        # The socket listens already: early callers wait in its backlog.
        with atomic_write(settings.address_file) as partial:
            partial.write_text(f"{address}\n", encoding="utf8")
    asyncio.get_running_loop().set_exception_handler(_loop_faults())
    await _DrainingServer(server_config(door), door, calls).serve([listener])
    logging.getLogger(__name__).info("stopped")


def server_config(door: Door) -> uvicorn.Config:
    settings = door.settings
    return uvicorn.Config(
        build_app(door),
        ws="websockets-sansio",
        ws_max_size=settings.max_message_bytes,
        # A pong would queue behind audio that the services are not ready for: see `_listen`.
        ws_ping_timeout=None,
        timeout_graceful_shutdown=1,
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=settings.tls_certificate_file,
        ssl_keyfile=settings.tls_key_file,
    )


def _loop_faults() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return an exception handler for the event loop.

    When no file descriptor is left, asyncio reports it for each place of the backlog and tries
    again after a second; this handler logs one line a second.
    """
    told_s = 0.0

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told_s
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - told_s >= 1:
            told_s = loop.time()
            logging.getLogger(__name__).warning("connections wait: %s", error.strerror)

    return tell


async def _serve_calls(door: Door) -> asyncio.Server:
    listener = listen(door.settings, "audiosocket_port")
    address = address_of(*listener.getsockname()[:2])
    logging.getLogger(__name__).info("listening for calls", extra={"address": address})
    return await asyncio.start_server(partial(audiosocket.serve_call, door), sock=listener)


def listen(settings: GatewaySettings, port_field: str = "port") -> socket.socket:
    """Listen at a port of the settings, on its host.

    Raises:
        OSError: that cannot be; the message names the setting at fault.
    """
    host = getattr(settings, settings.host_field(port_field))
    port = getattr(settings, port_field)
    is_ipv6 = ":" in host
    try:
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            backlog=_BACKLOG,
            # At `::` IPv4 comes in, too, as at the services and the metrics.
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise cannot_listen(settings, port_field, error) from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; its connections inherit it
        # A caller whose machine acknowledges nothing counts as gone.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
    return listener


if __name__ == "__main__":
    sys.exit(main())
