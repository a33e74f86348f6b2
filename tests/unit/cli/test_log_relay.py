"""Passing on a child's lines."""

import asyncio
import io

from earvoice.cli.log_relay import LogFolder, LogRelay


async def pump(relay, *blocks):
    """Let the relay read these blocks."""
    reader = asyncio.StreamReader()
    for block in blocks:
        reader.feed_data(block)
    reader.feed_eof()
    await relay.pump(reader)


async def test_lines_are_prefixed_and_the_last_ones_kept():
    """However they are cut, and whatever bytes they hold."""
    output = io.StringIO()
    relay = LogRelay("encoder | ", output)
    await pump(relay, b"one\ntw", b"o\n\xff", b"\n", b"end")
    lines = ["one", "two", "\ufffd", "end"]
    assert output.getvalue() == "".join(f"encoder | {line}\n" for line in lines)
    assert relay.tail == "\n".join(lines)


async def test_only_the_last_lines_are_kept():
    """A child that talks for days does not fill the memory."""
    relay = LogRelay()
    await pump(relay, b"x\n" * 1000, b"y" * 200_000 + b"\n")
    assert relay.tail.count("\n") == 19
    assert relay.tail.endswith("y" * 200_000)


async def test_a_folder_gets_a_file_each(tmp_path):
    """Instead of the shared stream."""
    shared = io.StringIO()
    logs = LogFolder(shared, tmp_path / "logs")
    await pump(logs.relay("encoder"), b"hello\n")
    logs.close()
    assert (tmp_path / "logs" / "encoder.log").read_text() == "hello\n"
    assert shared.getvalue() == ""
