"""Which failures of a replica are its own: another replica may do better."""

from __future__ import annotations

from earvoice.runtime.errors import (
    BackendUnavailableError,
    EarvoiceError,
    IdleError,
    ModelMismatchError,
    NotReadyError,
    SessionLimitError,
)

RETRY_AFTER_MS = 1000

REFUSALS = (
    SessionLimitError.reason,
    NotReadyError.reason,
    BackendUnavailableError.reason,
    ModelMismatchError.reason,
)
"""Answers to an opening that others may answer otherwise; the most helpful to a client first."""


class ReplicaLostError(BackendUnavailableError):
    """The transport says so, or nothing is answered any more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=RETRY_AFTER_MS)


def is_loss(error: EarvoiceError) -> bool:
    """Say whether a running session can go on elsewhere: its replica is gone, or is going.

    Or it has given us up: while we waited for another service's replacement we were silent.
    """
    passing = (NotReadyError.reason, IdleError.reason)
    return isinstance(error, ReplicaLostError) or error.reason in passing


def is_refusal(error: EarvoiceError) -> bool:
    """Say whether a session may be opened elsewhere."""
    return error.reason in REFUSALS


def most_helpful(first: EarvoiceError | None, second: EarvoiceError) -> EarvoiceError:
    """Return the one of two refusals that says more about what to do."""
    if first is None:
        return second
    return min(first, second, key=lambda error: REFUSALS.index(error.reason))
