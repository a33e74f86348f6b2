"""The recordings of a test set, and their references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from earvoice.cli.command import CommandError
from earvoice.cli.exit_code import ExitCode

_ROUNDING_MS = 1.0


@dataclass(frozen=True)
class SourceRecording:
    """One recording of a test set.

    Attributes:
        index: place in the list, from 0.
        path: of the recording.
        duration_ms: its length, above 0.
        reference: its translation; empty if there is none.
    """

    index: int
    path: Path
    duration_ms: float
    reference: str = ""

    def is_same(self, other: SourceRecording) -> bool:
        """Whether both are one recording with one reference; its folder may have moved."""
        return (
            self.path.name == other.path.name
            and self.reference == other.reference
            and abs(self.duration_ms - other.duration_ms) < _ROUNDING_MS
        )


def read_sources(path: Path, references: Sequence[str] | None) -> tuple[SourceRecording, ...]:
    """Return the recordings that a file lists, a path a line.

    A path that does not exist as it stands is looked for beside the list.

    Args:
        path: the list.
        references: one for each recording; None if there are none.

    Raises:
        CommandError: the list cannot be read or is empty, there are more or fewer references, or
            a recording cannot be read.
    """
    names = read_lines(path)
    if references is not None and len(references) != len(names):
        raise _bad_input(
            f"{path} lists {len(names)} recordings, but there are {len(references)} references: "
            "there must be as many"
        )
    recordings: list[SourceRecording] = []
    for index, name in enumerate(names):
        if not name.strip():
            raise _bad_input(f"{path}:{index + 1}: the line is empty; it must name a recording")
        found = Path(name) if Path(name).is_file() else path.parent / name
        reference = references[index] if references is not None else ""
        place = f"{path}:{index + 1}"
        recordings.append(SourceRecording(index, found, _duration_ms(found, place), reference))
    return tuple(recordings)


def read_lines(path: Path) -> tuple[str, ...]:
    """Return the lines of a text; the last line's end begins no line of its own.

    Raises:
        CommandError: it cannot be read, or is empty.
    """
    try:
        lines = path.read_text(encoding="utf8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_input(f"{path} cannot be read: {error}") from error
    lines = [line.removesuffix("\r") for line in lines]
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise _bad_input(f"{path} is empty")
    return tuple(lines)


def _duration_ms(path: Path, place: str) -> float:
    # Only running needs the library that reads recordings; scoring does not.
    from earvoice.client.audio_file import AudioFile  # noqa: PLC0415
    from earvoice.client.errors import AudioSourceError  # noqa: PLC0415

    try:
        with AudioFile(path) as audio:
            duration_ms = audio.duration_ms
    except AudioSourceError as error:
        raise _bad_input(f"{place}: {error.message}") from error
    if duration_ms <= 0:
        raise _bad_input(f"{place}: {path} has no audio")
    return duration_ms


def _bad_input(message: str) -> CommandError:
    return CommandError(message, ExitCode.INPUT)
