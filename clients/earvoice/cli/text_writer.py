"""Events as flowing text: a line for every utterance, each word as soon as it is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from earvoice.client.event import Committed, EndOfUtterance, Tentative

if TYPE_CHECKING:
    from earvoice.client.event import TranslationEvent
    from earvoice.client.options import TranslationOptions

_DIM, _PLAIN, _ERASE_TO_END, _LEFT = "\x1b[2m", "\x1b[0m", "\x1b[K", "\x1b[{}D"


class TextWriter:
    """Writes the events of one translation.

    Args:
        output: where to.
        options: what was asked for; interim tails are drawn behind the text and taken back, so
            they need a terminal.
        width: columns of the terminal.
    """

    def __init__(self, output: TextIO, options: TranslationOptions, width: int = 80) -> None:
        self._output = output
        self._options = options
        self._width = width
        self._column = 0
        self._tail_shown = False

    def write(self, event: TranslationEvent) -> None:
        """Write what the event tells, if anything."""
        match event:
            case Committed():
                self._erase_tail()
                for word in event.words:
                    self._append(word.text, starts_word=word.starts_word)
            case Tentative():
                self._erase_tail()
                self._show_tail(event.text)
            case EndOfUtterance():
                self._erase_tail()
                self._end_line()
                if self._options.transcript and event.source_transcript:
                    self._output.write(f"  < {event.source_transcript}\n")
        self._output.flush()

    def close(self) -> None:
        """End the line; a translation that failed may have left it open."""
        self._erase_tail()
        self._end_line()
        self._output.flush()

    def _append(self, text: str, *, starts_word: bool) -> None:
        blank = " " if starts_word and self._column else ""
        self._output.write(f"{blank}{text}")
        self._column += len(blank) + len(text)

    def _end_line(self) -> None:
        if self._column:
            self._output.write("\n")
        self._column = 0

    def _show_tail(self, text: str) -> None:
        # A tail that wrapped could not be erased: it is cut at the right edge.
        room = self._width - 2 - self._column % self._width
        shown = text[:room] if room > 0 else ""
        if shown:
            self._output.write(f" {_DIM}{shown}{_PLAIN}{_LEFT.format(len(shown) + 1)}")
            self._tail_shown = True

    def _erase_tail(self) -> None:
        if self._tail_shown:
            self._output.write(_ERASE_TO_END)
        self._tail_shown = False
