"""A test set: what is translated, and how it is counted."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from earvoice.cli.command import CommandError
from earvoice.cli.exit_code import ExitCode
from earvoice.evaluation.reference_sentence import read_segmentation
from earvoice.evaluation.run.source_list import SourceRecording, read_lines, read_sources
from earvoice.evaluation.scoring import ScoringOptions, add_long_form_arguments
from earvoice.evaluation.spoken_word import read_spoken_words
from earvoice.evaluation.text_unit import Unit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_STREAMS = 2


@dataclass(frozen=True)
class SourceSet:
    """A test set that was checked.

    Attributes:
        recordings: in order.
        settings: what identifies it, for a run's folder.
        scoring: how a log of it is scored.
        stream_count: recordings at once.
        live: sent at real time.
    """

    recordings: tuple[SourceRecording, ...]
    settings: dict[str, Any]
    scoring: ScoringOptions
    stream_count: int
    live: bool

    @property
    def partly_scorable(self) -> bool:
        """Whether a log without some of the recordings can be scored."""
        return self.scoring.segmentation is None and self.scoring.words is None


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the test set, and how it is streamed and counted."""
    parser.add_argument(
        "--source",
        dest="source_list",
        type=Path,
        metavar="FILE",
        help="the test set: paths of recordings, a line each",
    )
    parser.add_argument(
        "--target",
        type=Path,
        metavar="FILE",
        help="references, a line for each recording (for each sentence with --segmentation)",
    )
    add_long_form_arguments(parser)
    parser.add_argument(
        "--unit", choices=get_args(Unit), help="what to count (char for zh and ja, else word)"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="send at real time and measure the wall clock (default: at full speed, every segment "
        "decided, computation as the services measure it)",
    )
    parser.add_argument(
        "--streams", type=int, metavar="N", help=f"recordings at once ({_STREAMS}; 1 with --live)"
    )


def read_source_set(options: argparse.Namespace) -> SourceSet:
    """Return the test set, with every file of it checked.

    Raises:
        CommandError: an argument is missing, or a file cannot be used.
        LogError: the segmentation or the words cannot be read.
    """
    if options.source_list is None:
        raise CommandError("--source is missing: a file with the paths of recordings, a line each")
    if options.streams is not None and options.streams < 1:
        raise CommandError(f"--streams = {options.streams}: must be 1 or more")
    scoring = read_scoring(options)
    references = None if options.target is None else read_lines(options.target)
    if options.segmentation is None:
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
            "recordings": [[str(one.path), one.path.stat().st_size] for one in recordings],
            "references": _digest([one.reference for one in recordings]),
            "unit": options.unit,
            "live": options.live,
        },
        scoring=scoring,
        stream_count=options.streams or (1 if options.live else _STREAMS),
        live=options.live,
    )


def read_scoring(options: argparse.Namespace) -> ScoringOptions:
    """Return how logs of the test set are scored; they hold their references themselves.

    Raises:
        CommandError: a segmentation without its references.
    """
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
    """Return the recordings with the references of their sentences, joined."""
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
