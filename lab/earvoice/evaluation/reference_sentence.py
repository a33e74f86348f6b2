"""The sentences of a long recording: where they are spoken, and their translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from earvoice.evaluation.readers.log import LogError


@dataclass(frozen=True)
class ReferenceSentence:
    """A sentence of the reference, and where it is spoken.

    Attributes:
        recording: name of the recording's file, without ending.
        start_ms: where it begins in the recording.
        duration_ms: its length, above 0.
        recording_end_ms: end of the recording's last sentence.
        text: the reference.
    """

    recording: str
    start_ms: float
    duration_ms: float
    recording_end_ms: float
    text: str


def read_segmentation(path: Path, references: Sequence[str]) -> tuple[ReferenceSentence, ...]:
    """Return the reference sentences, those of a recording together and in order.

    Args:
        path: YAML, a list of ``{wav, offset, duration}`` in seconds.
        references: one for each.

    Raises:
        LogError: it is not as above, or there are more or fewer references.
    """
    import yaml  # noqa: PLC0415 - only long-form scoring needs it

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise LogError(str(path), f"is no YAML: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise LogError(str(path), "must be a list of sentences with wav, offset and duration")
    if len(entries) != len(references):
        raise LogError(
            str(path), f"{len(references)} references were given for {len(entries)} sentences"
        )
    places = [_read_place(f"{path}, entry {n}", entry) for n, entry in enumerate(entries, start=1)]
    ends_ms: dict[str, float] = {}
    for name, start_ms, duration_ms in places:
        ends_ms[name] = max(ends_ms.get(name, 0.0), start_ms + duration_ms)
    names = [name for name, _ in groupby(places, key=lambda place: place[0])]
    if len(names) != len(ends_ms):
        raise LogError(str(path), "the sentences of a recording must stand together")
    return tuple(
        ReferenceSentence(name, start_ms, duration_ms, ends_ms[name], text)
        for (name, start_ms, duration_ms), text in zip(places, references, strict=True)
    )


def _read_place(place: str, entry: object) -> tuple[str, float, float]:
    match entry:
        case {"wav": str(wav), "offset": int() | float() as offset_s, "duration": duration_s} if (
            isinstance(duration_s, int | float) and offset_s >= 0 and duration_s > 0
        ):
            return Path(wav).stem, offset_s * 1000, duration_s * 1000
        case _:
            raise LogError(
                place,
                f"{entry}: must have wav (a text), offset (seconds, 0 or above) and duration "
                "(seconds, above 0)",
            )
