"""Errors of ours as ``google.rpc.Status``, and back."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from earvoice.runtime.errors import Code, EarvoiceError, InternalError, RemoteError, find_error

ERROR_DOMAIN = "earvoice"
_LOG = logging.getLogger("earvoice.runtime.status")


def as_earvoice_error(error: BaseException) -> EarvoiceError:
    """Return the error to report to the caller.

    A group counts as its first error of ours. Any other error is logged with an id and becomes an
    InternalError that names only the id.
    """
    ours = find_error(error)
    if ours is not None:
        return ours
    incident = uuid.uuid4().hex
    _LOG.error("unexpected error", exc_info=error, extra={"incident": incident})
    return InternalError(
        f"internal error; the server's log has it as incident {incident}", incident=incident
    )


def status_proto(error: EarvoiceError) -> status_pb2.Status:
    """Return the error as ``google.rpc.Status`` with ErrorInfo, and RetryInfo where it helps."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=ERROR_DOMAIN, metadata=error.metadata
    )
    details = [_packed(info)]
    if error.retry_after_ms is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status_pb2.Status(code=int(error.code), message=error.message, details=details)


def remote_error(error: grpc.aio.AioRpcError) -> RemoteError | None:
    """Return another service's error, or None when the status is the transport's own."""
    details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
    if not isinstance(details, bytes):
        return None
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    retry_after_ms = None
    for detail in status.details:
        detail.Unpack(info)
        if detail.Unpack(retry):
            retry_after_ms = retry.retry_delay.ToMilliseconds()
    if info.domain != ERROR_DOMAIN:
        return None
    return RemoteError(
        Code(status.code), info.reason, status.message, retry_after_ms, **dict(info.metadata)
    )


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
