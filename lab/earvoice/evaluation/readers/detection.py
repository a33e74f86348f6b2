"""Which log a path is, and whose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from earvoice.evaluation.readers.log import Log, LogError, ReadingOptions
from earvoice.evaluation.readers.omnisteval import read_omnisteval
from earvoice.evaluation.readers.record import Record
from earvoice.evaluation.readers.simuleval_1_0 import EOS, read_simuleval_1_0
from earvoice.evaluation.readers.simuleval_1_1 import read_simuleval_1_1
from earvoice.evaluation.readers.simulstream import read_simulstream
from earvoice.evaluation.readers.translation import read_translation

_NAMES = ("instances.log", "instances.resegmented.jsonl")
_TRANSLATION_FIELDS = ("delay_ms", "source_transcript", "tentative")
_SIMULSTREAM_FIELDS = ("model_loading_time", "metadata", "total_audio_processed")


def find_log(path: Path) -> Path:
    """Return the log that a path names: the file itself, or the one log in a folder.

    Raises:
        LogError: there is no such file, or no log in the folder, or several.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise LogError(str(path), "no such file or folder")
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    others = sorted(path.glob("*.jsonl"))
    if len(others) == 1:
        return others[0]
    found = ", ".join(other.name for other in others) or "none"
    raise LogError(
        str(path),
        f"must hold {' or '.join(_NAMES)}, or one *.jsonl (found: {found}); name the file",
    )


def read_log(path: Path, records: Sequence[Record], options: ReadingOptions) -> Log:
    """Return a log of whichever known format.

    Raises:
        LogError: the format is unknown, or the log is not as its format says.
    """
    first = records[0]
    if any(name in first for name in _TRANSLATION_FIELDS):
        return read_translation(path, records, options)
    if any(name in first for name in _SIMULSTREAM_FIELDS):
        return read_simulstream(path, records, options)
    if "delays" in first:
        read = read_simuleval_1_0 if _is_1_0(records) else read_simuleval_1_1
        return read(path, records, options)
    if "emission_cu" in first or "segid" in first:
        return read_omnisteval(path, records, options)
    raise LogError(
        first.place,
        f"fields {', '.join(first.fields)} are of no known log (instances.log of SimulEval 1.0 and "
        "1.1, OmniSTEval's resegmented JSON lines, simulstream's, those of earvoice translate)",
    )


def _is_1_0(records: Sequence[Record]) -> bool:
    """Tell whether the tool wrote its metrics into the log, or an end of sentence as a unit."""
    return any(
        "metric" in record or str(record.fields.get("prediction", "")).endswith(EOS)
        for record in records
    )
