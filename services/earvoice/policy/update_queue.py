"""Changes in mid-stream, on their way to the first segment that ends behind them."""

from __future__ import annotations

from collections import deque

from earvoice.policy.stream_options import StreamOptions


class UpdateQueue:
    """Keeps changes of a session's options in their place in the audio."""

    def __init__(self) -> None:
        self._updates: deque[tuple[int, StreamOptions]] = deque()

    def add(self, position_sample: int, options: StreamOptions) -> None:
        """Add a change.

        Args:
            position_sample: audio of the session received before it.
            options: the session's options from then on.
        """
        self._updates.append((position_sample, options))

    def take_before(self, end_sample: int) -> tuple[int, StreamOptions] | None:
        """Return and forget the oldest change if it lies before the end of a segment."""
        if self._updates and self._updates[0][0] < end_sample:
            return self._updates.popleft()
        return None
