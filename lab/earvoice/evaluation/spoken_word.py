"""When each word of the source was spoken, and which one a unit attends to.

Synthesised test sets know it. A unit attends to audio; the word spoken at the end of that audio is
the one that it is taken to translate: the model says which word, the test set says when it ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from earvoice.evaluation.instance import Instance
from earvoice.evaluation.log import Log, LogError, Record, parse_line, read_lines

_RULE = (
    "spoken lag: release - end of the word that was spoken where the unit's attended audio ends; "
    "between two words, the one before"
)


@dataclass(frozen=True)
class SpokenWord:
    """A word of the source, with its place in the recording in ms."""

    text: str
    start_ms: float
    end_ms: float


def read_spoken_words(path: Path) -> list[tuple[SpokenWord, ...]]:
    """Return the words of each recording, in order of time."""
    return [_read_words(place, parse_line(place, line)) for place, line in read_lines(path)]


def place_spoken_words(log: Log, words: Sequence[Sequence[SpokenWord]]) -> Log:
    """Return a log whose units know when the word that they attend to had been spoken."""
    if len(words) != len(log.instances):
        raise LogError(
            "words", f"{len(words)} lists were given for {len(log.instances)} recordings"
        )
    instances = tuple(map(_place, log.instances, words))
    return replace(log, instances=instances, notes=(*log.notes, _RULE))


def word_at(position_ms: float, words: Sequence[SpokenWord]) -> SpokenWord:
    """Return the last word that began before a position; the first where none has."""
    began = bisect_left([word.start_ms for word in words], position_ms)
    return words[max(began - 1, 0)]


def _place(instance: Instance, words: Sequence[SpokenWord]) -> Instance:
    if instance.source_ends_ms is None:
        raise LogError(instance.name, "the log does not say what audio each unit attends to")
    if not words:
        return instance
    ends_ms = tuple(word_at(end_ms, words).end_ms for end_ms in instance.source_ends_ms)
    return replace(instance, spoken_ends_ms=ends_ms)


def _read_words(place: str, value: object) -> tuple[SpokenWord, ...]:
    if not isinstance(value, list):
        raise LogError(place, "must be a list of words")
    words: list[SpokenWord] = []
    for entry in value:
        if not isinstance(entry, dict):
            raise LogError(place, f"has {entry!r}: must be objects with word, start_ms and end_ms")
        record = Record(place, entry)
        word = SpokenWord(record.text("word"), record.number("start_ms"), record.number("end_ms"))
        if words and word.start_ms < words[-1].start_ms:
            raise LogError(place, f"{word.text!r} starts before the word before it")
        words.append(word)
    return tuple(words)
