"""What can go wrong with a translation, and what to do about it.

TranslationError
├── RequestRefusedError      the request itself must change
│   ├── InvalidRequestError  INVALID_ARGUMENT, FAILED_PRECONDITION, ALREADY_EXISTS
│   ├── NotServedError       NOT_FOUND, UNIMPLEMENTED
│   └── AccessDeniedError    UNAUTHENTICATED, PERMISSION_DENIED
├── ServerBusyError          RESOURCE_EXHAUSTED
├── ServerUnavailableError   UNAVAILABLE; INTERNAL and UNKNOWN that come from the transport alone
├── SessionEndedError        OUT_OF_RANGE, DEADLINE_EXCEEDED, CANCELLED, ABORTED
├── ServerFaultError         INTERNAL, UNKNOWN, DATA_LOSS
│   └── ProtocolError        the server broke the protocol (no status of its own)
└── AudioSourceError         the audio could not be read; the server has nothing to do with it

``translate_failure`` is the one place where gRPC's statuses become these.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar
from urllib.parse import unquote

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc import StatusCode
from grpc.aio import AioRpcError
from grpc_status import rpc_status

_LOG = logging.getLogger("earvoice.client")
_DOMAIN = "earvoice"
_ENDED_FOR_ITSELF = {"replays", "allowed_ms"}
"""In the metadata of a session that was ended because its own audio may be crashing servers, or
because an utterance was longer than the encoder takes. Resuming would only repeat it."""
_NOT_CONNECTED = re.compile(
    r"failed to connect to all addresses; last error: \w+: (?:ipv[46]:)?(?P<address>\S+): "
    r"(?:Failed to connect to remote host: )?(?P<cause>.+)",
    re.DOTALL,
)
"""How gRPC says that a server could not be reached; other wordings are passed on unchanged."""
_CERTIFICATE_REFUSED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED(?:: (?P<fault>[^:]+))?|Hostname Verification Check failed"
)
"""How it says that it did not accept the server's certificate."""
_NO_TLS = "WRONG_VERSION_NUMBER"
"""How it says that the server answered, but not in TLS."""
_HUNG_UP = "Socket closed"
"""How it says that the server took the connection and closed it before a word. A server that dies
does so; one with TLS does so always, if the client speaks plainly or shows no certificate."""


class Advice(Enum):
    """What the caller should do after an error."""

    RETRY = "retry"
    """Nothing had begun: send the same again, after ``retry_after_s`` if that is given."""
    RESUME = "resume"
    """The session had begun: keep its words, open a new one, send audio from
    ``acknowledged_samples`` on."""
    GIVE_UP = "give up"
    """The same request will fail again."""


class TranslationError(Exception):
    """A translation, or a question to the server, that did not succeed.

    Args:
        code: name of the gRPC status, such as ``UNAVAILABLE``; empty when there was none.
        reason: the server's ``ErrorReason`` without its prefix; empty when the transport failed.
        retry_after_s: how long the server asks to wait, 0 or more; None when it does not say.
        metadata: the server's further facts, such as ``field``, ``value`` and ``allowed``.
        passing: whether the same request may succeed later.
    """

    passing_by_default: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        retry_after_s: float | None = None,
        metadata: dict[str, str] | None = None,
        passing: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.metadata = metadata or {}
        self.passing = self.passing_by_default if passing is None else passing
        self.session_started = False
        self.acknowledged_samples = 0
        self.resume_token = b""

    @property
    def advice(self) -> Advice:
        """What to do: after a failure that may pass, retry, or resume if the session had begun."""
        if not self.passing:
            return Advice.GIVE_UP
        return Advice.RESUME if self.session_started else Advice.RETRY


class RequestRefusedError(TranslationError):
    """The request itself must change before it can succeed."""


class InvalidRequestError(RequestRefusedError):
    """A field, an order of messages or an audio message that the server does not accept."""


class NotServedError(RequestRefusedError):
    """The server has no such model, method or feature."""


class AccessDeniedError(RequestRefusedError):
    """The credentials are missing or do not allow this."""


class ServerBusyError(TranslationError):
    """Every session is taken, or the client did not read its answers."""


class ServerUnavailableError(TranslationError):
    """Nobody answers there, the connection broke, or the server is draining."""

    passing_by_default = True


class SessionEndedError(TranslationError):
    """The server ended the session: too long, idle, or cancelled on the way."""

    passing_by_default = True


class ServerFaultError(TranslationError):
    """A bug or a broken machine on the other side."""


class ProtocolError(ServerFaultError):
    """The server's messages break the protocol."""


class AudioSourceError(TranslationError):
    """A recording or an audio stream that cannot be read."""


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

# Without a reason of ours these mean a broken connection, or a proxy whose server is gone.
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
    if status in _BROKEN_WAY and not reason:
        return ServerUnavailableError
    return ERROR_BY_STATUS[status]


def translate_failure(failure: AioRpcError) -> TranslationError:
    status = failure.code()
    details = _read_details(failure)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    ours = any(detail.Unpack(info) for detail in details) and info.domain == _DOMAIN
    waits = any(detail.Unpack(retry) for detail in details)
    reason = info.reason if ours else ""
    metadata = dict(info.metadata) if ours else {}
    message, is_lasting = _read_message(failure.details())
    is_final = is_lasting or bool(_ENDED_FOR_ITSELF & {*metadata})
    return error_class(status, reason)(
        message,
        code=status.name,
        reason=reason,
        retry_after_s=retry.retry_delay.ToMilliseconds() / 1000 if waits else None,
        metadata=metadata,
        # None: a reason of a newer server, or a failure of the transport.
        passing=False if is_final else PASSING_BY_REASON.get(reason),
    )


def _read_message(details: str | None) -> tuple[str, bool]:
    """Return what went wrong, and whether it stays so until somebody changes the set-up."""
    unreached = _NOT_CONNECTED.fullmatch(details or "")
    if unreached is None:
        return details or "the server gave no message", False
    address, cause = unquote(unreached["address"]), unreached["cause"]
    if _NO_TLS in cause:
        return f"{address} speaks no TLS: turn it on there, or do without it here", True
    if cause == _HUNG_UP:
        hint = "as a server does that asks for TLS, or for the client's certificate"
        return f"{address} closed the connection at once, {hint}", False
    refused = _CERTIFICATE_REFUSED.search(cause)
    if refused is None:
        return f"no server answers at {address}: {cause}", False
    message = (
        f"the certificate of {address} is not accepted ({refused['fault'] or refused[0]}); "
        "allowed: a valid one of a trusted authority, for the name that is called"
    )
    return message, True


def _read_details(failure: AioRpcError) -> Sequence[Any]:
    try:
        status = rpc_status.from_call(failure)
    except (DecodeError, ValueError) as error:
        _LOG.warning("the details of status %s cannot be read: %s", failure.code(), error)
        return ()
    return status.details if status else ()
