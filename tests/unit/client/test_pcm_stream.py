"""Raw audio from pipes and files."""

import os

from earvoice.client.audio_format import AudioFormat
from earvoice.client.pcm_stream import PcmStream

AUDIO = AudioFormat("linear16", 8_000, 1)


async def test_a_regular_file_is_read_in_chunks(tmp_path):
    """Redirected files work as well as pipes."""
    path = tmp_path / "audio.raw"
    path.write_bytes(bytes(range(200)) * 10)
    with path.open("rb") as source:
        chunks = [chunk async for chunk in PcmStream(source, AUDIO).chunks(50)]
    assert b"".join(chunks) == path.read_bytes()
    assert {len(chunk) for chunk in chunks} == {800, 400}


async def test_a_pipe_is_cut_at_frames(caplog):
    """Frames that come in two writes are joined; an unfinished one at the end is dropped aloud."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        stream = PcmStream(source, AUDIO).chunks(80)
        os.write(writing, b"123")
        assert await anext(stream) == b"12"
        os.write(writing, b"45")
        os.close(writing)
        assert [chunk async for chunk in stream] == [b"34"]
    assert "dropped 1 bytes" in caplog.text


async def test_stopping_ends_an_open_pipe():
    """A microphone that would go on for ever is ended from outside."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        pcm = PcmStream(source, AUDIO)
        stream = pcm.chunks(80)
        os.write(writing, b"12")
        assert await anext(stream) == b"12"
        pcm.stop()
        assert [chunk async for chunk in stream] == []
    os.close(writing)
