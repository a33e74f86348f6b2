"""Checks of single fields, with one wording for all."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import duration_pb2

from earvoice.runtime.errors import InvalidFieldError

Number = TypeVar("Number", int, float)


def check_range(field: str, value: Number, lowest: Number, highest: Number) -> Number:
    if not lowest <= value <= highest:
        raise InvalidFieldError(field, value, f"{lowest} to {highest}")
    return value


def duration_ms(
    field: str, duration: duration_pb2.Duration, lowest_ms: int, highest_ms: int
) -> int:
    value_ms = duration.seconds * 1000 + duration.nanos // 1_000_000
    if not lowest_ms <= value_ms <= highest_ms:
        raise InvalidFieldError(field, f"{value_ms} ms", f"{lowest_ms} ms to {highest_ms} ms")
    return value_ms


def milliseconds(value_ms: int) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMilliseconds(value_ms)
    return duration
