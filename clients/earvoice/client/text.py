"""Source words as a session's bytes: what `AudioFormat("words", 4)` means."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from earvoice.client.errors import AudioSourceError
from earvoice.runtime.audio_format import WORD_BYTES, WORDS

SENTENCE_END = b"\n"


def write_words(text: str) -> bytes:
    """Return the words of a text, one frame each; the end of a line ends a sentence.

    Raises:
        AudioSourceError: a word is too long.
    """
    frames = bytearray()
    *lines, rest = text.split("\n")
    for line in lines:
        *words, last = [word.encode() for word in line.split()] or [b""]
        frames += b"".join(map(_frame, words)) + (_frame(last + SENTENCE_END) if last else b"")
    return bytes(frames) + b"".join(_frame(word.encode()) for word in rest.split())


def _frame(word: bytes) -> bytes:
    if len(word) > WORD_BYTES:
        raise AudioSourceError(
            f"the word {word.decode(errors='replace')!r} has {len(word)} bytes; "
            f"allowed: 1 to {WORD_BYTES}, the line feed after a sentence's last included"
        )
    return word.ljust(WORD_BYTES, b"\0")


async def words_as_they_come(blocks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the words of a text that was cut anywhere, each as soon as white space shows its end.

    A line's end counts if it follows the word directly, or comes in the same block.
    """
    rest = b""
    async for block in blocks:
        rest += block
        end = max(rest.rfind(blank) for blank in (b" ", b"\n", b"\t")) + 1
        if whole := _words_of(rest[:end]):
            yield whole
        rest = rest[end:]
    if whole := _words_of(rest):
        yield whole


def _words_of(text: bytes) -> bytes:
    try:
        # Some editors begin a text with a byte order mark.
        return write_words(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise AudioSourceError(f"the text is not UTF-8: {error}") from error


def duration_ms(text: str) -> float:
    """Return how long a text lasts on its session's clock."""
    return WORDS.position_ms(len(text.split()))
