"""The recordings of a test set, and their references."""

from __future__ import annotations

import argparse
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from earvoice.cli.command import CommandError, ExitCode
from earvoice.client.text import duration_ms as text_duration_ms
from earvoice.evaluation.instance import Unit
from earvoice.evaluation.log import read_lines, read_spoken_words
from earvoice.evaluation.long_form import read_segmentation
from earvoice.evaluation.score import ScoringOptions, add_long_form_arguments
from earvoice.runtime.files import digest_of

_ROUNDING_MS = 1.0


@dataclass(frozen=True)
class SourceRecording:
    index: int
    path: Path
    duration_ms: float
    reference: str = ""
    text: str | None = None
    """The source itself if it is text; `path` then contains the whole set."""

    def is_same(self, other: SourceRecording) -> bool:
        """Whether both are one recording with one reference; its folder may have moved."""
        return (
            self.path.name == other.path.name
            and self.text == other.text
            and self.reference == other.reference
            and abs(self.duration_ms - other.duration_ms) < _ROUNDING_MS
        )


def read_sources(path: Path, references: Sequence[str] | None) -> tuple[SourceRecording, ...]:
    """Return the recordings that a file lists, a path a line.

    A path that does not exist as given is looked up relative to the list's folder.
    """
    recordings: list[SourceRecording] = []
    names = _read_items(path, references, "lists {} recordings", "name a recording")
    for index, name in enumerate(names):
        found = Path(name) if Path(name).is_file() else path.parent / name
        reference = references[index] if references is not None else ""
        place = f"{path}:{index + 1}"
        recordings.append(SourceRecording(index, found, _duration_ms(found, place), reference))
    return tuple(recordings)


def read_texts(path: Path, references: Sequence[str] | None) -> tuple[SourceRecording, ...]:
    """Return the sentences of a text, a line each."""
    lines = _read_items(path, references, "has {} sentences", "be a sentence")
    return tuple(
        SourceRecording(
            index, path, text_duration_ms(line), references[index] if references else "", line
        )
        for index, line in enumerate(lines)
    )


def _read_items(
    path: Path, references: Sequence[str] | None, holds: str, must: str
) -> tuple[str, ...]:
    lines = read_lines(path)
    if references is not None and len(references) != len(lines):
        raise _bad_input(
            f"{path} {holds.format(len(lines))}, but there are {len(references)} references: "
            "these numbers must be equal"
        )
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise _bad_input(f"{path}:{number}: the line is empty; it must {must}")
    return lines


def _duration_ms(path: Path, place: str) -> float:
    # Only translating needs the library that reads recordings; scoring does not.
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


_STREAMS = 2


@dataclass(frozen=True)
class SourceSet:
    recordings: tuple[SourceRecording, ...]
    settings: dict[str, Any]
    scoring: ScoringOptions
    stream_count: int

    @property
    def partly_scorable(self) -> bool:
        """Whether a log without some of the recordings can be scored."""
        return self.scoring.segmentation is None and self.scoring.words is None


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        dest="source_list",
        type=Path,
        metavar="FILE",
        help="the test set: paths of recordings, one per line",
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="--source is the source text itself, one sentence per line, for a model that reads "
        "words; latency is then also given in words",
    )
    parser.add_argument(
        "--target",
        type=Path,
        metavar="FILE",
        help="references, one line per recording (per sentence with --segmentation)",
    )
    add_long_form_arguments(parser)
    parser.add_argument(
        "--unit", choices=get_args(Unit), help="what to count (char for zh and ja, else word)"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="send in real time and measure the wall clock (default: send at full speed, decide "
        "every segment, and take computation as the services measure it)",
    )
    parser.add_argument(
        "--streams",
        type=int,
        metavar="N",
        help=f"recordings sent at once ({_STREAMS}; 1 with --live)",
    )


def read_source_set(options: argparse.Namespace) -> SourceSet:
    if options.source_list is None:
        raise CommandError("--source is missing: a file with the paths of recordings, a line each")
    if options.streams is not None and options.streams < 1:
        raise CommandError(f"--streams = {options.streams}: must be 1 or more")
    scoring = read_scoring(options)
    references = None if options.target is None else read_lines(options.target)
    if options.text:
        for flag in ("live", "segmentation", "words"):
            if getattr(options, flag):
                raise CommandError(f"--text cannot be used with --{flag}")
        recordings = read_texts(options.source_list, references)
    elif options.segmentation is None:
        recordings = read_sources(options.source_list, references)
    else:
        recordings = _join_references(
            read_sources(options.source_list, None), options.segmentation, references or ()
        )
    if options.words is not None:
        _check_words(options.words, len(recordings))
    return SourceSet(
        recordings=recordings,
        settings={
            "recordings": [_identity(one) for one in recordings],
            "references": _digest([one.reference for one in recordings]),
            "unit": options.unit,
            "live": options.live,
            **({"source_type": "text"} if options.text else {}),
        },
        scoring=scoring,
        stream_count=options.streams or (1 if options.live else _STREAMS),
    )


def _identity(source: SourceRecording) -> list[object]:
    if source.text is not None:
        return [str(source.path), _digest([source.text])]
    return [str(source.path), digest_of([source.path])]


def read_scoring(options: argparse.Namespace) -> ScoringOptions:
    """Return how to score logs of the test set; the logs contain their references."""
    if options.segmentation is not None and options.target is None:
        raise CommandError("--segmentation needs --target: a line for each sentence")
    return ScoringOptions(
        unit=options.unit,
        references=options.target if options.segmentation is not None else None,
        segmentation=options.segmentation,
        resegmenter=options.resegmenter,
        words=options.words,
    )


def _join_references(
    recordings: Sequence[SourceRecording], segmentation: Path, references: Sequence[str]
) -> tuple[SourceRecording, ...]:
    texts: dict[str, list[str]] = defaultdict(list)
    for sentence in read_segmentation(segmentation, references):
        texts[sentence.recording].append(sentence.text)
    names = [recording.path.stem for recording in recordings]
    if sorted(names) != sorted(texts):
        different = ", ".join(sorted(set(names) ^ texts.keys())) or "one is listed twice"
        raise CommandError(
            f"{segmentation} and the recordings do not fit together: {different}", ExitCode.INPUT
        )
    return tuple(
        SourceRecording(one.index, one.path, one.duration_ms, " ".join(texts[one.path.stem]))
        for one in recordings
    )


def _check_words(path: Path, count: int) -> None:
    lists = len(read_spoken_words(path))
    if lists != count:
        raise CommandError(f"{path} has {lists} lines for {count} recordings", ExitCode.INPUT)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
