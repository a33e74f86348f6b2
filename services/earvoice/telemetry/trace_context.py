"""Which span a message belongs to, and which sessions are traced."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from opentelemetry.trace import SpanContext, TraceFlags

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def new_root() -> SpanContext:
    return _sampled(_random_id(128))


def new_child(parent: SpanContext) -> SpanContext:
    return _sampled(parent.trace_id)


def read_traceparent(traceparent: str) -> SpanContext | None:
    """Return the context that a message names, or None when it names none that is valid."""
    if not traceparent:
        return None
    found = _TRACEPARENT.fullmatch(traceparent)
    # Version 00 has exactly four fields; ff is forbidden (W3C Trace Context 3.2.2).
    if found is None or found[1] == "ff" or (found[1] == "00" and len(traceparent) > 55):  # noqa: PLR2004
        return None
    context = SpanContext(
        int(found[2], 16),
        int(found[3], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(found[4], 16)),
    )
    return context if context.is_valid else None


def sampled_parent(traceparent: str) -> SpanContext | None:
    """Return the context that a message names if its trace is sampled, else None."""
    context = read_traceparent(traceparent)
    return context if context is not None and context.trace_flags.sampled else None


def traceparent_of(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _random_id(bits: int) -> int:
    """Never 0, which is no valid id."""
    return random.getrandbits(bits) or 1


def _sampled(trace_id: int) -> SpanContext:
    return SpanContext(trace_id, _random_id(64), is_remote=False, trace_flags=_SAMPLED)


def draw_traced(traceparent: str, ratio: float, draw: Callable[[], float] = random.random) -> bool:
    """Say whether a session is traced: if its caller's trace is sampled, or by a random draw.

    OpenTelemetry's own samplers decide by trace, and each segment is a trace of its own: parts of
    a session would be traced, and others not.

    Args:
        ratio: share of sessions that are traced, 0 to 1.
    """
    return sampled_parent(traceparent) is not None or draw() < ratio
