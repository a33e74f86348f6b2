"""The one place where gRPC's statuses become our errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc import StatusCode
from grpc_status import rpc_status

from earvoice.client.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NotServedError,
    ServerBusyError,
    ServerFaultError,
    ServerUnavailableError,
    SessionEndedError,
    TranslationError,
)

if TYPE_CHECKING:
    from google.rpc import status_pb2
    from grpc.aio import AioRpcError

_LOG = logging.getLogger("earvoice.client")
_DOMAIN = "earvoice"

# In the metadata of a session that was ended because its own audio may be what ends servers.
_REPLAYED = "replays"

ERROR_BY_STATUS: dict[StatusCode, type[TranslationError]] = {
    StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    StatusCode.FAILED_PRECONDITION: InvalidRequestError,
    StatusCode.ALREADY_EXISTS: InvalidRequestError,
    StatusCode.NOT_FOUND: NotServedError,
    StatusCode.UNIMPLEMENTED: NotServedError,
    StatusCode.UNAUTHENTICATED: AccessDeniedError,
    StatusCode.PERMISSION_DENIED: AccessDeniedError,
    StatusCode.RESOURCE_EXHAUSTED: ServerBusyError,
    StatusCode.UNAVAILABLE: ServerUnavailableError,
    StatusCode.OUT_OF_RANGE: SessionEndedError,
    StatusCode.DEADLINE_EXCEEDED: SessionEndedError,
    StatusCode.CANCELLED: SessionEndedError,
    StatusCode.ABORTED: SessionEndedError,
    StatusCode.INTERNAL: ServerFaultError,
    StatusCode.UNKNOWN: ServerFaultError,
    StatusCode.DATA_LOSS: ServerFaultError,
}

# Without a reason of ours these tell of a connection that broke or of a proxy whose server is gone.
_BROKEN_WAY = (StatusCode.INTERNAL, StatusCode.UNKNOWN)

# Whether the same request may succeed later, by the server's reason.
PASSING_BY_REASON: dict[str, bool] = {
    "INVALID_FIELD": False,
    "MALFORMED_MESSAGE": False,
    "INVALID_AUDIO": False,
    "OUT_OF_ORDER": False,
    "MODEL_NOT_FOUND": False,
    "LANGUAGE_NOT_SUPPORTED": False,
    "MODEL_MISMATCH": False,
    "STATES_UNKNOWN": False,
    "NOT_IMPLEMENTED": False,
    "SESSION_LIMIT": True,
    "SLOW_READER": True,
    "SESSION_TOO_LONG": True,
    "IDLE": True,
    "NOT_READY": True,
    "BACKEND_UNAVAILABLE": True,
    "INTERNAL": False,
    "UNAUTHENTICATED": False,
    "PERMISSION_DENIED": False,
    "INVALID_RESUME_TOKEN": False,
}


def error_class(status: StatusCode, reason: str) -> type[TranslationError]:
    """Return the class of a status, with the server's reason or an empty one."""
    if status in _BROKEN_WAY and not reason:
        return ServerUnavailableError
    return ERROR_BY_STATUS[status]


def translate_failure(failure: AioRpcError) -> TranslationError:
    """Return the error that a failed call means.

    Args:
        failure: what grpc raised; its status is any but OK.

    Raises:
        KeyError: a status that ``ERROR_BY_STATUS`` does not name (none exists today).
    """
    status = failure.code()
    details = _read_details(failure)
    info = error_details_pb2.ErrorInfo()
    ours = _unpack(details, info) and info.domain == _DOMAIN
    reason = info.reason if ours else ""
    metadata = dict(info.metadata) if ours else {}
    return error_class(status, reason)(
        failure.details() or "the server gave no message",
        code=status.name,
        reason=reason,
        retry_after_s=_read_retry_after_s(details),
        metadata=metadata,
        # None: a reason of a newer server, or a failure of the transport.
        passing=False if _REPLAYED in metadata else PASSING_BY_REASON.get(reason),
    )


def _read_details(failure: AioRpcError) -> status_pb2.Status | None:
    try:
        return rpc_status.from_call(failure)
    except (DecodeError, ValueError) as error:
        _LOG.warning("the details of status %s cannot be read: %s", failure.code(), error)
        return None


def _read_retry_after_s(details: status_pb2.Status | None) -> float | None:
    retry = error_details_pb2.RetryInfo()
    if not _unpack(details, retry):
        return None
    return float(retry.retry_delay.ToMilliseconds()) / 1000


def _unpack(
    details: status_pb2.Status | None,
    message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo,
) -> bool:
    """Fill ``message`` from the first detail of its type; tell whether there was one."""
    found = details.details if details else ()
    return any(detail.Unpack(message) for detail in found)
