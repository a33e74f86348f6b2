"""Source words as a session's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.client.audio import send_fast
from earvoice.client.errors import AudioSourceError
from earvoice.client.text import duration_ms, words_as_they_come, write_words
from earvoice.encoder.text import read_words
from earvoice.runtime.audio_format import WORDS


def test_a_word_is_a_frame():
    """UTF-8, padded; blanks part words, and a line's end stays with its last one."""
    frames = write_words("Zoë  liest\n\n vor \nund")
    assert [frames[i : i + 64] for i in range(0, len(frames), 64)] == [
        "Zoë".encode().ljust(64, b"\0"),
        b"liest\n".ljust(64, b"\0"),
        b"vor\n".ljust(64, b"\0"),
        b"und".ljust(64, b"\0"),
    ]
    assert WORDS.duration_ms(len(frames)) == duration_ms("Zoë  liest\n\n vor \nund") == 1000.0


def test_a_word_that_does_not_fit_is_named():
    """64 bytes fit; with the end of its sentence 63 do."""
    assert len(write_words("x" * 64)) == 64
    for text in ("x" * 65, f"{'x' * 64}\n", "ä" * 33):
        with pytest.raises(AudioSourceError, match=r"the word '[xä]+.* bytes; allowed: 1 to 64"):
            write_words(text)


@pytest.mark.asyncio
async def test_words_leave_when_a_blank_shows_their_end():
    """A word that is cut waits for its rest, bytes of a character too; the last needs no blank."""
    blocks = [b"die kl", b"eine Zo", b"\xc3", b"\xab\nsi", b"eht"]
    came = [read_words(each) async for each in words_as_they_come(send_fast(blocks))]
    assert came == [["die"], ["kleine"], ["Zoë\n"], ["sieht"]]


@pytest.mark.asyncio
async def test_a_byte_order_mark_is_no_letter():
    """Even if it is cut."""
    blocks = [b"\xef\xbb", b"\xbfdie kleine Zo\xc3\xab"]
    came = [read_words(each) async for each in words_as_they_come(send_fast(blocks))]
    assert came == [["die", "kleine"], ["Zoë"]]


@pytest.mark.asyncio
async def test_what_is_no_text_is_told():
    """Sound on standard input is not UTF-8 for long."""
    with pytest.raises(AudioSourceError, match="the text is not UTF-8"):
        _ = [each async for each in words_as_they_come(send_fast([b"\xff\xfe "]))]


@given(st.lists(st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=15)))
def test_words_survive_the_wire(words):
    """What a client writes, the encoder reads."""
    assert read_words(write_words(" ".join(words))) == words
