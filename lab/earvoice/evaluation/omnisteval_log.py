"""``instances.resegmented.jsonl`` of OmniSTEval: a long output, cut to the reference sentences.

Times are relative to the sentence's start, and can be below 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from earvoice.evaluation.instance import ElapsedClock, Instance, snap_to_end, split_text
from earvoice.evaluation.log import Log, ReadingOptions, Record
from earvoice.evaluation.simuleval_log import check_unit_count

_REPORT_NAME = "evaluation_report.txt"
_WORD_RULE = "as the log that OmniSTEval cut released them"
_LONG_FORM_NOTE = (
    "long form: YAAL is LongYAAL (cut at the end of the recording), AL is LongAL and so on; no ATD "
    "for segments cut out of a stream"
)
_CLOCK_NOTE = (
    "computation-aware times are left out: the log does not say their clock; give it with "
    f"--elapsed-clock (segment if OmniSTEval corrected them), or keep {_REPORT_NAME} beside it"
)


def read_omnisteval(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    options.check_references(path, len(records))
    report = path.with_name(_REPORT_NAME)
    report_text = report.read_text(encoding="utf8") if report.is_file() else ""
    clock = options.elapsed_clock or _find_clock(report_text)
    instances = tuple(
        _read_instance(position, record, clock, options) for position, record in enumerate(records)
    )
    unsaid = clock is None and any("emission_ca" in record for record in records)
    notes = (_LONG_FORM_NOTE, _CLOCK_NOTE) if unsaid else (_LONG_FORM_NOTE,)
    version = re.search(r"OmniSTEval v(\S+)", report_text)
    name = f"OmniSTEval {version[1]}" if version else "OmniSTEval"
    return Log(f"{name} resegmented JSON lines", instances, _WORD_RULE, notes)


def _find_clock(report: str) -> ElapsedClock | None:
    """Return the clock that OmniSTEval's own report tells.

    With its correction each word has its delay and its own segment's computation. Without, the
    times are whatever the log had that it cut.
    """
    return "segment" if re.search(r"Fix CA emissions\s+yes", report) else None


def _read_instance(
    position: int, record: Record, clock: ElapsedClock | None, options: ReadingOptions
) -> Instance:
    prediction = record.text("prediction")
    delays_ms = record.numbers("emission_cu") if "emission_cu" in record else ()
    check_unit_count(record, len(split_text(prediction, options.unit)), len(delays_ms), options)
    source_length_ms = record.number("source_length")
    reference = options.reference(position, record.optional_text("reference"))
    aware = "emission_ca" in record or not delays_ms
    elapsed_ms = record.numbers("emission_ca") if "emission_ca" in record else ()
    ending = "time_to_recording_end"
    with record.checking():
        return Instance(
            name=record.place,
            unit=options.unit,
            source_length_ms=source_length_ms,
            delays_ms=snap_to_end(delays_ms, source_length_ms),
            elapsed_ms={clock: elapsed_ms} if clock and aware else {},
            prediction=prediction,
            reference=reference,
            reference_units=options.reference_units(reference),
            recording_end_ms=record.number(ending) if ending in record else source_length_ms,
        )
