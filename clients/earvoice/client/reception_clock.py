"""The client's wall clock of one stream: how long after the first sample something arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from earvoice.client.audio_format import AudioFormat


class ReceptionClock:
    """Measures from the stream's first sample.

    Args:
        audio: format of the bytes sent.
        paced: a chunk is sent when its last sample exists, so that the first sample existed one
            chunk before the first sending; False: time zero is the first sending.
        now_s: a monotonic clock in seconds.
    """

    def __init__(self, audio: AudioFormat, *, paced: bool, now_s: Callable[[], float]) -> None:
        self._audio = audio
        self._paced = paced
        self._now_s = now_s
        self._origin_s: float | None = None

    def note_sending(self, byte_count: int) -> None:
        """Note that a message of so many bytes is about to be sent; the first one counts."""
        if self._origin_s is None:
            existed_ms = self._audio.duration_ms(byte_count) if self._paced else 0.0
            self._origin_s = self._now_s() - existed_ms / 1000

    def read_ms(self) -> float:
        """Milliseconds since the first sample; 0 as long as nothing was sent."""
        return 0.0 if self._origin_s is None else 1000 * (self._now_s() - self._origin_s)
