"""No log can hold up who writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from earvoice.runtime.log import LogSink

MORE_THAN_A_PIPE_BYTES = 80_000
"""Linux gives a pipe 65,536."""


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(writing)


def read_all(reading: int, count: int) -> list[bytes]:
    """Read until so many lines have come."""
    content = b""
    while content.count(b"\n") < count:
        content += os.read(reading, 1 << 20)
    return content.splitlines()


def takes(sink: LogSink, line: str) -> bool:
    """Write a line, and say whether it was not dropped."""
    before = sink.dropped_count
    sink.write(line)
    return sink.dropped_count == before


def test_lines_come_in_order(pipe):
    reading, writing = pipe
    sink = LogSink(writing)
    for number in range(100):
        sink.write(f"line {number} ä")
    assert read_all(reading, 100) == [f"line {n} ä".encode() for n in range(100)]
    sink.close()
    assert sink.dropped_count == 0


def test_a_reader_that_stops_holds_nobody_up_and_hears_of_what_it_missed(pipe):
    """A pipe that is full blocks the thread alone; past the limit lines are dropped and counted."""
    reading, writing = pipe
    sink = LogSink(writing, limit_bytes=MORE_THAN_A_PIPE_BYTES + 20_000)
    sink.write("y" * MORE_THAN_A_PIPE_BYTES)  # from here on the thread waits
    for _ in range(1000):
        sink.write("x" * 999)
    dropped = sink.dropped_count
    kept = 1000 - dropped
    assert 0 < kept < 1000
    assert read_all(reading, 1 + kept)[1:] == [b"x" * 999] * kept
    while not takes(sink, "again"):
        dropped += 1  # its thread has written all, and not yet said so
    assert read_all(reading, 2) == [b"... %d log lines were dropped" % dropped, b"again"]
    sink.close()


def test_closing_does_not_wait_for_a_reader_that_never_comes(pipe):
    _, writing = pipe
    sink = LogSink(writing)
    for _ in range(200):
        sink.write("x" * 999)
    sink.close(timeout_s=0.01)
    sink.write("too late")
    assert sink.dropped_count == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_drops_and_counts():
    """And the next line is tried again."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    sink = LogSink(descriptor)
    sink.write("one")
    sink.write("two")
    sink.close(timeout_s=60)
    assert sink.dropped_count == 2
    os.close(descriptor)


def test_a_reader_that_died_is_no_error(pipe):
    reading, writing = pipe
    os.close(reading)
    sink = LogSink(writing)
    sink.write("to nobody")
    sink.close(timeout_s=60)
    assert sink.dropped_count == 1
