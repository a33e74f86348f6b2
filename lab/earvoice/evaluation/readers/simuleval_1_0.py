"""``instances.log`` of SimulEval 1.0: the end of sentence is a unit, with a delay of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from earvoice.evaluation.instance import Instance, snap_to_end
from earvoice.evaluation.readers.log import Log, ReadingOptions
from earvoice.evaluation.readers.record import Record
from earvoice.evaluation.readers.simuleval_1_1 import check_unit_count
from earvoice.evaluation.text_unit import split_text

EOS = "</s>"
_WORD_RULE = "as the agent that wrote the log released them; the end of sentence is a unit"
_NOTES = (
    f"{EOS} counts as a unit of the hypothesis, as it does in such a log",
    "RTF: such a log tells the computation up to the last released unit only",
    "the rows 'SimulEval 1.0' are what that version printed; all others follow 1.1",
)


def read_simuleval_1_0(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return the log.

    Raises:
        LogError: a line lacks a field, or holds an impossible value.
    """
    options.check_references(path, len(records))
    instances = tuple(
        _read_instance(position, record, options) for position, record in enumerate(records)
    )
    return Log("SimulEval 1.0 instances.log", instances, _WORD_RULE, _NOTES, ends_with_eos=True)


def _read_instance(position: int, record: Record, options: ReadingOptions) -> Instance:
    prediction = record.text("prediction").removesuffix(EOS).rstrip()
    delays_ms, elapsed_ms = record.numbers("delays"), record.numbers("elapsed")
    units = len(split_text(prediction, options.unit))
    # A hypothesis that was cut off before its end has no end of sentence.
    if len(delays_ms) != units:
        check_unit_count(record, units + 1, len(delays_ms), options)
    source_length_ms = record.number("source_length")
    reference = options.reference(position, record.optional_text("reference"))
    with record.checking():
        return Instance(
            name=record.place,
            unit=options.unit,
            source_length_ms=source_length_ms,
            delays_ms=snap_to_end(delays_ms, source_length_ms),
            elapsed_ms={options.elapsed_clock or "simuleval": elapsed_ms},
            prediction=prediction,
            reference=reference,
            reference_units=options.reference_units(reference),
            computation_ms=elapsed_ms[-1] - delays_ms[-1] if elapsed_ms and delays_ms else None,
        )
