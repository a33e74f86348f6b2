"""Bytes of any size as messages of whole frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from earvoice.client.errors import AudioSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from earvoice.client.audio_format import AudioFormat

# The server refuses audio messages above 1 MiB.
MESSAGE_LIMIT_BYTES = 1024 * 1024


class FrameCutter:
    """Cuts a byte stream into messages that hold whole frames and are not too long.

    Args:
        audio: format of the bytes.
        limit_bytes: longest message.
    """

    def __init__(self, audio: AudioFormat, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> None:
        self._frame_bytes = audio.frame_bytes
        self._limit_bytes = limit_bytes - limit_bytes % audio.frame_bytes
        self._rest = b""

    def add(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the messages that a further chunk completes; an unfinished frame waits."""
        joined = self._rest + chunk
        whole_bytes = len(joined) - len(joined) % self._frame_bytes
        self._rest = joined[whole_bytes:]
        for start in range(0, whole_bytes, self._limit_bytes):
            yield joined[start : min(start + self._limit_bytes, whole_bytes)]

    def check_end(self) -> None:
        """Check that the audio may end here.

        Raises:
            AudioSourceError: bytes of an unfinished frame are left.
        """
        if self._rest:
            raise AudioSourceError(
                f"the audio ends inside a frame: {len(self._rest)} of {self._frame_bytes} bytes"
            )
