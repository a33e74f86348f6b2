"""gRPC's credentials, made from TLS files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import grpc

from earvoice.runtime.tls import ChannelTls, ServerTls
from earvoice.runtime.watched_file import FileStamp, file_stamp

_LOG = logging.getLogger("earvoice.runtime.credentials")

Stamps = tuple[FileStamp | None, ...]


def channel_credentials(tls: ChannelTls) -> grpc.ChannelCredentials:
    """Read a client's files.

    Raises:
        TlsFileError: one of them cannot be used.
    """
    tls.check()
    return grpc.ssl_channel_credentials(
        _content(tls.ca_file), _content(tls.key_file), _content(tls.certificate_file)
    )


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Read a server's files; a later connection is served with what they hold then.

    Raises:
        TlsFileError: one of them cannot be used.
    """
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
    """Return what gRPC asks, in a thread of its own, before each handshake."""
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
        # Files that change while they are read may not belong together: the next handshake.
        if _stamps(tls) != stamps:
            return None
        seen = stamps
        _LOG.info("certificate read again", extra={"file": str(tls.certificate_file)})
        return configuration

    return changed


def _stamps(tls: ServerTls) -> Stamps:
    files = (tls.certificate_file, tls.key_file, tls.client_ca_file)
    return tuple(file_stamp(file) for file in files if file is not None)


def _content(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes()
