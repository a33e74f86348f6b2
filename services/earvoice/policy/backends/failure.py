"""What can go wrong with another service, and what its answers took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from earvoice.api.v1 import types_pb2
from earvoice.policy.timeline import HopTimings
from earvoice.runtime.errors import BackendUnavailableError
from earvoice.runtime.status import remote_error

RETRY_AFTER_MS = 1000


@contextmanager
def translated(service: str) -> Iterator[None]:
    """Turn the transport's errors into ours: a status of ours is final, any other means gone.

    Raises:
        EarvoiceError: instead of what grpc raised.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise remote_error(error) or gone(service) from error
    except asyncio.InvalidStateError as error:
        raise gone(service) from error


def gone(service: str) -> BackendUnavailableError:
    """Return the error for a service that does not answer."""
    return BackendUnavailableError(f"the {service} is gone", retry_after_ms=RETRY_AFTER_MS)


def answer_of(read: Any, service: str) -> Any:
    """Return what was read from a call.

    Raises:
        BackendUnavailableError: the call has ended instead.
    """
    if read is grpc.aio.EOF:
        raise gone(service)
    return read


async def close(call: Any, service: str) -> None:
    """End a call and wait until the service has, too; what it still sends is not needed.

    Raises:
        EarvoiceError: it ended badly.
    """
    with translated(service):
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass


def hop_timings(sent_s: float, timings: types_pb2.Timings) -> HopTimings:
    """Return a request's timings, answered now."""
    round_trip_ms = (time.perf_counter() - sent_s) * 1000
    return HopTimings(round_trip_ms, timings.elapsed_ms, timings.compute_ms)
