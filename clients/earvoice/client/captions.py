"""Released words as captions: cues that fit a screen and never change.

A cue depends only on the words up to its end and the one that follows, so live streams and
recordings get the same cues. Lengths, times and reading speed are those of the usual guidelines
for subtitles (BBC, Netflix: two lines of 37 to 42 characters, 1 to 7 s, 17 characters a second).
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from earvoice.client.event import CommittedWord, NotUnderstood
from earvoice.runtime.punctuation import CLOSING_MARKS, SENTENCE_ENDS

SubtitleForm = Literal["srt", "vtt"]

LINE_COLUMNS = 42
LINE_LIMIT = 2
SHORTEST_MS = 1000
LONGEST_MS = 7000
COLUMNS_PER_SECOND = 17
PAUSE_MS = 1000
"""A silence this long in the source ends a cue."""
SENTENCE_COLUMNS = 21
"""A sentence shorter than this shares its cue with the next one."""
DELAY_LIMIT_MS = 2000
"""A cue that begins later than its source by more than this is not shown longer for reading."""

_CLAUSE_ENDS = (*SENTENCE_ENDS, *",;:\N{EN DASH}—、，；：،؛")  # noqa: RUF001


@dataclass(frozen=True)
class Cue:
    """A caption: one or two lines, shown from ``start_ms`` until ``end_ms`` of the audio."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


@dataclass
class _Unit:
    """Text that no line break may divide: a word, or a character of a script without spaces."""

    text: str
    blank: str
    start_ms: float
    end_ms: float
    columns: int


@dataclass(frozen=True)
class CaptionMarks:
    """How captions mark words that may be wrong.

    Attributes:
        below: words with less confidence than this are followed by ``(?)``.
        not_understood: shown where speech was not understood, such as ``[not understood]``; empty
            shows nothing.
    """

    below: float = 0.0
    not_understood: str = ""

    def text(self, word: CommittedWord) -> str:
        """Return a word's text; a mark goes after its last letter, before a full stop."""
        if word.confidence >= self.below:
            return word.text
        return _LAST_LETTER.sub(r"\1(?)", word.text, count=1)


NO_MARKS = CaptionMarks()
_LAST_LETTER = re.compile(r"([^\W_])(?=[\W_]*$)")


class CaptionWriter:
    """Makes cues of one language's words.

    Args:
        line_columns: longest line; a wide character of Chinese or Japanese takes two columns.
    """

    def __init__(self, line_columns: int = LINE_COLUMNS, marks: CaptionMarks = NO_MARKS) -> None:
        self._line_columns = line_columns
        self._marks = marks
        wrapped = textwrap.wrap(marks.not_understood, line_columns)
        # `wrap` counts letters, but wide ones take two columns.
        lines = [part for line in wrapped for part in cut_to_lines(line, line_columns)]
        self._not_understood = tuple(lines[:LINE_LIMIT])
        self._units: list[_Unit] = []
        self._shown_until_ms = 0

    def add(self, word: CommittedWord) -> list[Cue]:
        cues: list[Cue] = []
        for index, part in enumerate(self._marks.text(word).split()):
            starts_word = index > 0 or word.starts_word
            for text in _divided(part):
                self._append(text, word, starts_word=starts_word)
                starts_word = False
                cues += self._take_full()
        return cues

    def end_utterance(self, not_understood: NotUnderstood | None = None) -> list[Cue]:
        """Return the cues of all remaining words: no later piece belongs to them.

        Args:
            not_understood: of the utterance.
        """
        cues = self._take_full()
        while self._units:
            cues.append(self._take(self._best_break(self._fitting())))
        if not_understood is not None and self._not_understood:
            start_ms = max(self._shown_until_ms, round(not_understood.start_ms))
            shown_ms = max(SHORTEST_MS, min(LONGEST_MS, round(not_understood.end_ms) - start_ms))
            self._shown_until_ms = start_ms + shown_ms
            cues.append(Cue(start_ms, self._shown_until_ms, self._not_understood))
        return cues

    def _append(self, text: str, word: CommittedWord, *, starts_word: bool) -> None:
        start_ms, end_ms = word.source_start_ms, max(word.source_start_ms, word.source_end_ms)
        units = self._units
        if not units or starts_word or _may_divide(units[-1].text, text):
            blank = " " if starts_word and units else ""
            units.append(_Unit(text, blank, start_ms, end_ms, columns_of(text)))
        else:
            units[-1].text += text
            units[-1].columns += columns_of(text)
            units[-1].start_ms = min(units[-1].start_ms, start_ms)
            units[-1].end_ms = max(units[-1].end_ms, end_ms)
        # A word longer than a line is divided wherever the line ends.
        if units[-1].columns > self._line_columns:
            long = units.pop()
            for part in cut_to_lines(long.text, self._line_columns):
                units.append(_Unit(part, long.blank, long.start_ms, long.end_ms, columns_of(part)))
                long.blank = ""

    def _take_full(self) -> list[Cue]:
        """Return the cues that are complete; the last unit may still grow."""
        cues: list[Cue] = []
        while self._units and (count := self._full_count()) is not None:
            cues.append(self._take(count))
        return cues

    def _full_count(self) -> int | None:
        units, fitting = self._units, self._fitting()
        columns, end_ms = 0, 0.0
        for index in range(1, min(fitting + 1, len(units))):
            last, following = units[index - 1], units[index]
            columns += last.columns + len(last.blank)
            end_ms = max(end_ms, last.end_ms)
            if columns >= SENTENCE_COLUMNS and _ends(last, SENTENCE_ENDS):
                return index
            if following.start_ms - end_ms >= PAUSE_MS:
                return index
        return self._best_break(fitting) if fitting < len(units) else None

    def _fitting(self) -> int:
        """Return how many units one cue can hold, at least one: two lines, filled one by one."""
        line, columns = 1, 0
        start_ms, end_ms = self._units[0].start_ms, 0.0
        for count, unit in enumerate(self._units):
            start_ms, end_ms = min(start_ms, unit.start_ms), max(end_ms, unit.end_ms)
            columns += unit.columns + (len(unit.blank) if columns else 0)
            if columns > self._line_columns:
                line, columns = line + 1, unit.columns
            if line > LINE_LIMIT or (count and end_ms - start_ms > LONGEST_MS):
                return count
        return len(self._units)

    def _best_break(self, fitting: int) -> int:
        """Return how many of the fitting units to show: up to a clause's end in its second half."""
        if fitting == len(self._units):
            return fitting
        total = sum(unit.columns for unit in self._units[:fitting])
        for ends in (SENTENCE_ENDS, _CLAUSE_ENDS):
            columns = total
            for count in range(fitting, 0, -1):
                if 2 * columns < total:
                    break
                columns -= self._units[count - 1].columns
                if _ends(self._units[count - 1], ends):
                    return count
        return fitting

    def _lay_out(self, units: Sequence[_Unit]) -> tuple[str, ...]:
        total = sum(unit.columns + len(unit.blank) for unit in units)
        if total <= self._line_columns:
            return (_join(units),)
        costs: dict[int, float] = {}
        first = 0
        for index, (unit, following) in enumerate(pairwise(units), start=1):
            first += unit.columns + len(unit.blank)
            second = total - first - len(following.blank)
            if max(first, second) <= self._line_columns:
                # Even lines read best; a clause's end is worth half a line.
                costs[index] = abs(first - second)
                if _ends(unit, _CLAUSE_ENDS):
                    costs[index] -= self._line_columns / 2
                if not following.blank:
                    costs[index] += self._line_columns
        place = min(costs, key=costs.__getitem__)
        return _join(units[:place]), _join(units[place:])

    def _take(self, count: int) -> Cue:
        shown, self._units = self._units[:count], self._units[count:]
        if self._units:
            self._units[0].blank = ""
        source_ms = min(unit.start_ms for unit in shown)
        start_ms = max(self._shown_until_ms, round(source_ms))
        lines = self._lay_out(shown)
        reading_ms = 0.0
        if start_ms - source_ms <= DELAY_LIMIT_MS:
            # Reading on across a line's end takes as long as a space, even within a word.
            reading_ms = 1000 * columns_of(" ".join(lines)) / COLUMNS_PER_SECOND
        wanted_ms = max(max(unit.end_ms for unit in shown) - start_ms, reading_ms, SHORTEST_MS)
        end_ms = start_ms + round(min(wanted_ms, LONGEST_MS))
        self._shown_until_ms = end_ms
        return Cue(start_ms, end_ms, lines)


def srt_block(number: int, cue: Cue) -> str:
    times = f"{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}"
    return "\n".join([str(number), times, *cue.lines]) + "\n\n"


VTT_HEADER = "WEBVTT\n\n"


def vtt_block(cue: Cue) -> str:
    times = f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}"
    lines = [
        line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for line in cue.lines
    ]
    return "\n".join([times, *lines]) + "\n\n"


def captions_of(
    words: Iterable[CommittedWord],
    marks: CaptionMarks = NO_MARKS,
    not_understood: Mapping[int, NotUnderstood] = MappingProxyType({}),
) -> list[Cue]:
    """Return the cues of a whole text.

    Args:
        not_understood: by utterance.
    """
    spoken: dict[int, list[CommittedWord]] = {utterance: [] for utterance in not_understood}
    for word in words:
        spoken.setdefault(word.utterance, []).append(word)
    writer = CaptionWriter(marks=marks)
    cues: list[Cue] = []
    for utterance, said in sorted(spoken.items()):
        for word in said:
            cues += writer.add(word)
        cues += writer.end_utterance(not_understood.get(utterance))
    return cues


def subtitle_file(cues: Iterable[Cue], form: SubtitleForm) -> str:
    if form == "vtt":
        return VTT_HEADER + "".join(map(vtt_block, cues))
    return "".join(srt_block(number, cue) for number, cue in enumerate(cues, 1))


def _clock(time_ms: int, point: str) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{milliseconds:03}"


def _divided(text: str) -> Iterator[str]:
    """Yield runs of narrow characters whole, and wide ones one by one."""
    run = ""
    for letter in text:
        if run and _may_divide(run, letter):
            yield run
            run = ""
        run += letter
    if run:
        yield run


def _may_divide(before: str, after: str) -> bool:
    """Say whether a line may break between two texts that no blank divides."""
    if after[0] in CLOSING_MARKS or after[0] in _CLAUSE_ENDS or unicodedata.combining(after[0]):
        return False
    return columns_of(before[-1]) > 1 or columns_of(after[0]) > 1


def _ends(unit: _Unit, ends: tuple[str, ...]) -> bool:
    return unit.text.rstrip(CLOSING_MARKS).endswith(ends)


def columns_of(text: str) -> int:
    """Return a text's width in columns: a wide character of Chinese or Japanese takes two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def cut_to_lines(text: str, columns: int) -> Iterator[str]:
    """Yield parts that each fill a line, then the rest; each has at least one character."""
    begin, filled = 0, 0
    for place, letter in enumerate(text):
        width = columns_of(letter)
        if begin < place and filled + width > columns:
            yield text[begin:place]
            begin, filled = place, 0
        filled += width
    yield text[begin:]


def _join(units: Sequence[_Unit]) -> str:
    return units[0].text + "".join(unit.blank + unit.text for unit in units[1:])
