"""What can go wrong with a translation, and what to do about it.

TranslationError
├── RequestRefusedError      the request itself must change
│   ├── InvalidRequestError  INVALID_ARGUMENT, FAILED_PRECONDITION, ALREADY_EXISTS
│   ├── NotServedError       NOT_FOUND, UNIMPLEMENTED
│   └── AccessDeniedError    UNAUTHENTICATED, PERMISSION_DENIED
├── ServerBusyError          RESOURCE_EXHAUSTED
├── ServerUnavailableError   UNAVAILABLE; INTERNAL and UNKNOWN that only the transport tells
├── SessionEndedError        OUT_OF_RANGE, DEADLINE_EXCEEDED, CANCELLED, ABORTED
├── ServerFaultError         INTERNAL, UNKNOWN, DATA_LOSS
│   └── ProtocolError        the server broke the protocol (no status of its own)
└── AudioSourceError         the audio could not be read; the server has nothing to do with it

Imports no grpc: ``rpc_failure`` is the one place where statuses become these.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class Advice(Enum):
    """What the caller should do after an error."""

    RETRY = "retry"
    """Nothing had begun: send the same again, after ``retry_after_s`` where it is given."""
    RESUME = "resume"
    """The session had begun: keep its words, open a new one, send audio from
    ``acknowledged_samples`` on."""
    GIVE_UP = "give up"
    """The same request will fail again."""


class TranslationError(Exception):
    """A translation, or a question to the server, that did not succeed.

    Args:
        message: what a person can act on.
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
        """What to do now: a failure that may pass is retried, or resumed once words may be out."""
        if not self.passing:
            return Advice.GIVE_UP
        return Advice.RESUME if self.session_started else Advice.RETRY


class RequestRefusedError(TranslationError):
    """The request itself must change before it can succeed."""


class InvalidRequestError(RequestRefusedError):
    """A field, an order of messages or an audio message that the server does not take."""


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
