"""What can be wrong with spans from outside."""

from __future__ import annotations


class SpanError(Exception):
    """A span, or a line that should hold spans, is not what the telemetry page describes.

    Args:
        where: the file and line, or the span.
        problem: what is wrong, with the value and what is allowed.
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
