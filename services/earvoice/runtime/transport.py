"""gRPC channels and servers: options that both ends must agree on, credentials, connections."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import grpc

from earvoice.runtime.files import FileStamp, file_stamp
from earvoice.runtime.tls import ChannelTls, ServerTls

MESSAGE_LIMIT_BYTES = 16 * 1024 * 1024
PUBLIC_MESSAGE_LIMIT_BYTES = 4 * 1024 * 1024
KEEPALIVE_TIME_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 5_000
# The default waits up to two minutes: long after a server has been started again.
INITIAL_RECONNECT_BACKOFF_MS = 200
MAXIMUM_RECONNECT_BACKOFF_MS = 2_000
# The default server forbids pings closer than five minutes and ends the connection.
MINIMUM_PING_INTERVAL_MS = 10_000

Options = list[tuple[str, int]]

_LOG = logging.getLogger("earvoice.runtime.transport")


def channel_options(message_limit_bytes: int = MESSAGE_LIMIT_BYTES) -> Options:
    """Return a client channel's options: keepalive without calls too, message limits."""
    return [
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", INITIAL_RECONNECT_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", MAXIMUM_RECONNECT_BACKOFF_MS),
        ("grpc.max_receive_message_length", message_limit_bytes),
        ("grpc.max_send_message_length", message_limit_bytes),
    ]


def server_options(message_limit_bytes: int = MESSAGE_LIMIT_BYTES) -> Options:
    return [
        *channel_options(message_limit_bytes),
        ("grpc.http2.min_ping_interval_without_data_ms", MINIMUM_PING_INTERVAL_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", MINIMUM_PING_INTERVAL_MS),
        # Two servers on one port would silently share its connections.
        ("grpc.so_reuseport", 0),
    ]


def open_channel(
    address: str,
    message_limit_bytes: int = MESSAGE_LIMIT_BYTES,
    tls: ChannelTls | None = None,
) -> grpc.aio.Channel:
    """Return a channel; it connects when it is used, and again when the connection is lost.

    Args:
        tls: None for plain HTTP/2. Its files are read now: a channel that is opened later gets
            what they contain then.
    """
    options: list[tuple[str, int | str]] = [
        *channel_options(message_limit_bytes),
        # A new channel gets a new connection: it is opened because an earlier one has failed.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.aio.insecure_channel(address, options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(address, channel_credentials(tls), options)


def bearer_metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


def channel_credentials(tls: ChannelTls) -> grpc.ChannelCredentials:
    """Read a client's files."""
    tls.check()
    return grpc.ssl_channel_credentials(
        _content(tls.ca_file), _content(tls.key_file), _content(tls.certificate_file)
    )


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Read a server's files; a later connection is served with what they contain then."""
    return grpc.dynamic_ssl_server_credentials(
        _configuration(tls),
        _rotation(tls),  # type: ignore[arg-type] # None is allowed: no change
        require_client_authentication=tls.client_ca_file is not None,
    )


def _configuration(tls: ServerTls) -> grpc.ServerCertificateConfiguration:
    tls.check()
    pair = (tls.key_file.read_bytes(), tls.certificate_file.read_bytes())
    return grpc.ssl_server_certificate_configuration([pair], _content(tls.client_ca_file))


def _rotation(tls: ServerTls) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """Return the function that gRPC calls, in a thread of its own, before each handshake."""
    seen = _stamps(tls)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        stamps = _stamps(tls)
        if stamps == seen:
            return None
        try:
            configuration = _configuration(tls)
        except OSError as error:
            seen = stamps
            _LOG.warning("the new certificate cannot be used, the old one stays: %s", error)
            return None
        # Files that change while they are read may not match: wait for the next handshake.
        if _stamps(tls) != stamps:
            return None
        seen = stamps
        _LOG.info("certificate read again", extra={"file": str(tls.certificate_file)})
        return configuration

    return changed


def _stamps(tls: ServerTls) -> tuple[FileStamp | None, ...]:
    files = (tls.certificate_file, tls.key_file, tls.client_ca_file)
    return tuple(file_stamp(file) for file in files if file is not None)


def _content(file: Path | str | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
