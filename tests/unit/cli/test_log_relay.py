"""Passing on a child's lines."""

import asyncio

from earvoice.cli.log_relay import LogRelay, ServiceLogs
from earvoice.runtime.log import LogSink


async def pump(relay, *blocks):
    reader = asyncio.StreamReader()
    for block in blocks:
        reader.feed_data(block)
    reader.feed_eof()
    await relay.pump(reader)


async def test_lines_are_prefixed_and_the_last_ones_kept(tmp_path):
    """However they are cut, and whatever bytes they hold."""
    with (tmp_path / "log").open("wb") as output:
        sink = LogSink(output.fileno())
        relay = LogRelay("encoder | ", sink)
        await pump(relay, b"one\ntw", b"o\n\xff", b"\n", b"end")
        sink.close(timeout_s=60)
    lines = ["one", "two", "\ufffd", "end"]
    assert (tmp_path / "log").read_text("utf8") == "".join(f"encoder | {line}\n" for line in lines)
    assert relay.tail == "\n".join(lines)


async def test_only_the_last_lines_are_kept():
    """A child that talks for days does not fill the memory."""
    relay = LogRelay()
    await pump(relay, b"x\n" * 1000, b"y" * 200_000 + b"\n")
    assert relay.tail.count("\n") == 19
    assert relay.tail.endswith("y" * 200_000)


async def test_a_line_without_an_end_is_cut():
    """A child that never breaks its line does not fill the memory either."""
    relay = LogRelay()
    await pump(relay, *[b"y" * 100_000] * 30)
    assert max(map(len, relay.tail.splitlines())) < 400_000


async def test_a_folder_gets_a_file_each(tmp_path, capfd):
    """Instead of standard error."""
    logs = ServiceLogs(shown=True, folder=tmp_path / "logs")
    await pump(logs.relay("encoder"), b"hello\n")
    logs.close()
    assert (tmp_path / "logs" / "encoder.log").read_text() == "hello\n"
    assert capfd.readouterr().err == ""


async def test_errors_that_nobody_reads_are_noted(tmp_path):
    """So that a command can say where to find them; those that are kept or shown need no word."""
    error = b'{"time": "", "level": "ERROR", "service": "policy", "message": "bug"}\n'
    lost, kept = ServiceLogs(), ServiceLogs(folder=tmp_path)
    await pump(lost.relay("encoder"), b'{"level": "WARNING"}\n')
    assert not lost.has_lost_errors
    for logs in (lost, kept):
        await pump(logs.relay("policy"), error)
        logs.close()
    assert (lost.has_lost_errors, kept.has_lost_errors) == (True, False)
