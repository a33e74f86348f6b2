"""simulstream's JSON lines: what its own scorer reads, with the detokenizer ``simuleval``.

A token is a word (a character with the unit ``char``), and none is ever deleted: a word that came
in pieces stands in the segment that completed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from earvoice.evaluation.readers.record import Record
from earvoice.evaluation.text_unit import Unit, split_text

_MS = 1000


def describe_runs(records: Sequence[Record], unit: Unit) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log; the services had loaded their model before.

    Args:
        records: of our ``instances.log``.
        unit: what it counts.

    Raises:
        LogError: a record lacks a field.
    """
    yield {"model_loading_time": 0.0}
    for record in records:
        identifier = int(record.number("index"))
        yield {"id": identifier, "metadata": {"wav_name": record.texts("source")[0]}}
        units = iter(split_text(record.text("prediction"), unit))
        for segment in record.records("segments" if "segments" in record else "merged_segments"):
            yield {
                "id": identifier,
                "total_audio_processed": segment.number("end_ms") / _MS,
                "computation_time": segment.number("computation_ms") / _MS,
                "generated_tokens": [next(units) for _ in range(int(segment.number("units")))],
                "deleted_tokens": [],
            }
