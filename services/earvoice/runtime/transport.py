"""gRPC channels and servers: options that both ends must agree on, and how a channel is opened."""

from __future__ import annotations

import grpc

from earvoice.runtime.credentials import channel_credentials
from earvoice.runtime.tls import ChannelTls

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
    """Return a server's options."""
    return [
        *channel_options(message_limit_bytes),
        ("grpc.http2.min_ping_interval_without_data_ms", MINIMUM_PING_INTERVAL_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", MINIMUM_PING_INTERVAL_MS),
        # Two servers on one port would share its connections without a word.
        ("grpc.so_reuseport", 0),
    ]


def open_channel(
    address: str,
    message_limit_bytes: int = MESSAGE_LIMIT_BYTES,
    tls: ChannelTls | None = None,
) -> grpc.aio.Channel:
    """Return a channel; it connects when it is used, and again when the connection is lost.

    Args:
        address: ``host:port``, or any gRPC target.
        message_limit_bytes: longest message taken or sent.
        tls: None for plain HTTP/2. Its files are read now: a channel that is opened later has
            what they hold then.

    Raises:
        TlsFileError: one of the files cannot be used.
    """
    options: list[tuple[str, int | str]] = [
        *channel_options(message_limit_bytes),
        # A new channel is a new connection: it is opened because another one has come to nothing.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.aio.insecure_channel(address, options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(address, channel_credentials(tls), options)


def bearer_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return a call's metadata that shows a token; none for an empty one."""
    return (("authorization", f"Bearer {token}"),) if token else ()
