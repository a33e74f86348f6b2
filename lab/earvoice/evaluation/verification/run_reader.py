"""Reading a recorded run: a gzipped JSON object with ``meta`` and ``instances``.

An agent 1.0 tells every read with its hypothesis and what it wrote, and after the last one the
final write; both belong to the last segment. An agent 1.1 tells hypotheses in ``trace`` and
released text in ``events``.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.readers.record import Record, parse_object
from earvoice.evaluation.verification.recorded_run import (
    RecordedInstance,
    RecordedRun,
    RecordedSegment,
)

END_WORD = "</s>"
END_TOKEN = 2
"""End of sentence in every dictionary of the papers' toolkit."""


def read_run(path: Path) -> RecordedRun:
    """Read a recorded run.

    Raises:
        LogError: it is not laid out as expected.
        OSError: it cannot be read.
    """
    content = _read_object(path)
    meta = content.record("meta")
    instances = tuple(_read_instance(fields) for fields in content.records("instances"))
    if not instances:
        raise LogError(str(path), "instances is empty")
    return RecordedRun(
        str(path),
        meta.text("policy"),
        meta.record("args"),
        meta.integer("segment_ms" if "segment_ms" in meta else "seg"),
        instances,
    )


def _read_object(path: Path) -> Record:
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LogError(str(path), f"is no gzip file: {error}") from error
    return parse_object(str(path), content)


def _read_instance(fields: Record) -> RecordedInstance:
    index = fields.integer("index")
    named = Record(f"{fields.place}: instance {index}", fields.fields)
    words, delays = named.text("prediction").split(), named.numbers("delays")
    if len(words) != len(delays):
        raise LogError(
            named.place, f"has {len(delays)} delays for {len(words)} words: must be as many"
        )
    if words and words[-1] == END_WORD:
        words, delays = words[:-1], delays[:-1]
    trace = named.records("trace")
    segments = _texts_apart(trace) if "events" in named else _reads_and_final(trace)
    if not segments:
        raise LogError(named.place, "trace is empty")
    return RecordedInstance(
        index,
        Path(named.text("wav")).name,
        named.number("source_length"),
        tuple(words),
        delays,
        segments,
    )


def _texts_apart(trace: Sequence[Record]) -> tuple[RecordedSegment, ...]:
    return tuple(_segment(step, None) for step in trace)


def _reads_and_final(trace: Sequence[Record]) -> tuple[RecordedSegment, ...]:
    """Join the last read and the final write into one segment."""
    segments: list[RecordedSegment] = []
    for step, following in zip_longest(trace, trace[1:]):
        kind = step.text("type")
        if kind == "final" and segments:
            continue
        if kind not in ("read", "final"):
            raise LogError(step.place, f"type = {kind!r} is not allowed; allowed: read, final")
        written = step.integers("write")
        if following is not None and following.text("type") == "final":
            written += following.integers("write")
            step = step if "hypo" in step or "hypo" not in following else following  # noqa: PLW2901 - the one that decoded
        segments.append(_segment(step, _without_end(written)))
    return tuple(segments)


def _segment(step: Record, written: tuple[int, ...] | None) -> RecordedSegment:
    if "hypo" not in step:
        return RecordedSegment(None, 0, written)
    hypothesis, prefix = _without_end(step.integers("hypo")), step.integers("prefix")
    if hypothesis[: len(prefix)] != prefix:
        raise LogError(step.place, f"hypo {list(hypothesis)} does not begin with its prefix")
    return RecordedSegment(hypothesis, len(prefix), written)


def _without_end(tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tokens[:-1] if tokens and tokens[-1] == END_TOKEN else tokens
