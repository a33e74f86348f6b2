"""The error tree: every failure that is ours, with its status code and reason.

EarvoiceError
├── InvalidFieldError             INVALID_ARGUMENT     INVALID_FIELD
│   └── LanguageNotSupportedError INVALID_ARGUMENT     LANGUAGE_NOT_SUPPORTED
├── MalformedMessageError         INVALID_ARGUMENT     MALFORMED_MESSAGE
├── InvalidAudioError             INVALID_ARGUMENT     INVALID_AUDIO
├── OutOfOrderError               FAILED_PRECONDITION  OUT_OF_ORDER
├── ModelMismatchError            FAILED_PRECONDITION  MODEL_MISMATCH
├── StatesUnknownError            FAILED_PRECONDITION  STATES_UNKNOWN
├── InvalidResumeTokenError       FAILED_PRECONDITION  INVALID_RESUME_TOKEN
├── ModelNotFoundError            NOT_FOUND            MODEL_NOT_FOUND
├── UnauthenticatedError          UNAUTHENTICATED      UNAUTHENTICATED
├── PermissionDeniedError         PERMISSION_DENIED    PERMISSION_DENIED
├── UnimplementedFieldError       UNIMPLEMENTED        NOT_IMPLEMENTED
├── SessionLimitError             RESOURCE_EXHAUSTED   SESSION_LIMIT   (retry)
├── SlowReaderError               RESOURCE_EXHAUSTED   SLOW_READER
├── SessionTooLongError           OUT_OF_RANGE         SESSION_TOO_LONG
├── IdleError                     DEADLINE_EXCEEDED    IDLE
├── NotReadyError                 UNAVAILABLE          NOT_READY       (retry)
├── BackendUnavailableError       UNAVAILABLE          BACKEND_UNAVAILABLE (retry)
├── RemoteError                   another service's own code and reason
└── InternalError                 INTERNAL             INTERNAL

Imports no grpc, so that sessions and decisions can raise without it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

Number = TypeVar("Number", int, float)

LONGEST_VALUE_CHARACTERS = 200
"""Of a value quoted in an error: a status of more than 8 KiB does not reach its caller."""


class Code(IntEnum):
    """The gRPC status codes we use, by their numbers on the wire."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class EarvoiceError(Exception):
    """A failure with a status.

    Args:
        retry_after_ms: when a retry may help, 0 or more; None when it does not.
    """

    code: Code = Code.INTERNAL
    reason: str = "INTERNAL"

    def __init__(self, message: str, *, retry_after_ms: int | None = None, **metadata: str) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.metadata = metadata


class InvalidFieldError(EarvoiceError):
    """A field of a message or of the configuration has a value that is not allowed.

    Args:
        problem: what is wrong; by default, that the value is not allowed.
    """

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_FIELD"

    def __init__(self, field: str, value: object, allowed: str, problem: str = "") -> None:
        # A caller chooses the names of a policy's parameters.
        field = field[:LONGEST_VALUE_CHARACTERS]
        super().__init__(
            f"{field} {problem or f'= {shown(value)} is not allowed'}; allowed: {allowed}",
            field=field,
            value=str(value)[:LONGEST_VALUE_CHARACTERS],
            allowed=allowed,
        )


def check_range(field: str, value: Number, lowest: Number, highest: Number) -> Number:
    if not lowest <= value <= highest:
        raise InvalidFieldError(field, value, f"{lowest} to {highest}")
    return value


class LanguageNotSupportedError(InvalidFieldError):
    reason = "LANGUAGE_NOT_SUPPORTED"


class MalformedMessageError(EarvoiceError):
    """The bytes are not the message that the method takes."""

    code = Code.INVALID_ARGUMENT
    reason = "MALFORMED_MESSAGE"


class InvalidAudioError(EarvoiceError):
    """Broken frames, values that are not numbers, or too many bytes."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_AUDIO"


class OutOfOrderError(EarvoiceError):
    """A message came in an order that the protocol does not allow."""

    code = Code.FAILED_PRECONDITION
    reason = "OUT_OF_ORDER"


class ModelMismatchError(EarvoiceError):
    """The caller expects another model than the one served."""

    code = Code.FAILED_PRECONDITION
    reason = "MODEL_MISMATCH"


class StatesUnknownError(EarvoiceError):
    """The states named are not the ones held."""

    code = Code.FAILED_PRECONDITION
    reason = "STATES_UNKNOWN"


class InvalidResumeTokenError(EarvoiceError):
    """An interrupted session cannot go on with this token.

    Args:
        cause: ``expired``, ``forged``, ``tenant``, ``model`` or ``version``.
    """

    code = Code.FAILED_PRECONDITION
    reason = "INVALID_RESUME_TOKEN"

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(f"resume_token is not allowed: {why}; start a new session", cause=cause)


class ModelNotFoundError(EarvoiceError):
    code = Code.NOT_FOUND
    reason = "MODEL_NOT_FOUND"


class UnauthenticatedError(EarvoiceError):
    """The caller shows no credentials, or none that are valid."""

    code = Code.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDeniedError(EarvoiceError):
    """The caller is known, and may not do this."""

    code = Code.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class UnimplementedFieldError(EarvoiceError):
    """A field or method that is reserved for a later version was used."""

    code = Code.UNIMPLEMENTED
    reason = "NOT_IMPLEMENTED"

    def __init__(self, field: str, message: str = "is not implemented in this version") -> None:
        super().__init__(f"{field} {message}", field=field)


class SessionLimitError(EarvoiceError):
    code = Code.RESOURCE_EXHAUSTED
    reason = "SESSION_LIMIT"


class SlowReaderError(EarvoiceError):
    code = Code.RESOURCE_EXHAUSTED
    reason = "SLOW_READER"


class SessionTooLongError(EarvoiceError):
    code = Code.OUT_OF_RANGE
    reason = "SESSION_TOO_LONG"


class IdleError(EarvoiceError):
    code = Code.DEADLINE_EXCEEDED
    reason = "IDLE"


class NotReadyError(EarvoiceError):
    """The server is draining, or not ready yet."""

    code = Code.UNAVAILABLE
    reason = "NOT_READY"


class BackendUnavailableError(EarvoiceError):
    """An encoder or decoder behind the policy service is gone."""

    code = Code.UNAVAILABLE
    reason = "BACKEND_UNAVAILABLE"


class RemoteError(EarvoiceError):
    """What another of our services answered, passed on as it is."""

    def __init__(
        self, code: Code, reason: str, message: str, retry_after_ms: int | None, **metadata: str
    ) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms, **metadata)
        self.code = code
        self.reason = reason


class InternalError(EarvoiceError):
    """A bug of ours, or of a policy that the server's operator added.

    For ours the message is a fixed sentence; the cause is in the log.
    """

    code = Code.INTERNAL
    reason = "INTERNAL"


def shown(value: object) -> str:
    """Return a caller's value as it is quoted in an error, cut if it is long."""
    text = repr(value)
    if len(text) <= LONGEST_VALUE_CHARACTERS:
        return text
    return f"{text[:LONGEST_VALUE_CHARACTERS]}…"


def find_error(error: BaseException | None) -> EarvoiceError | None:
    """Return the first error of ours in an exception, or in the group that a TaskGroup makes."""
    if isinstance(error, EarvoiceError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (find_error(inner) for inner in error.exceptions)
        return next((ours for ours in found if ours is not None), None)
    return None
