"""How a command shows a translation: text, JSON lines, captions, and its progress."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TextIO

from earvoice.client.captions import (
    NO_MARKS,
    VTT_HEADER,
    CaptionMarks,
    CaptionWriter,
    Cue,
    captions_of,
    columns_of,
    cut_to_lines,
    srt_block,
    vtt_block,
)
from earvoice.client.event import (
    Committed,
    CommittedWord,
    ElapsedClock,
    EndOfUtterance,
    NotUnderstood,
    SegmentDone,
    Started,
    Tentative,
    TranslationEvent,
    join_words,
)
from earvoice.client.options import TranslationOptions

_DIM, _PLAIN, _ERASE_TO_END, _LEFT = "\x1b[2m", "\x1b[0m", "\x1b[K", "\x1b[{}D"
_DECIMALS = 3
FORMATS = ("text", "jsonl", "srt", "vtt", "json")


class TextWriter:
    """Writes flowing text: a line for every utterance, each word as soon as it is released.

    Interim tails are drawn after the text and erased again, so they need a terminal.
    """

    def __init__(self, output: TextIO, options: TranslationOptions, width: int = 80) -> None:
        self._output = output
        self._options = options
        self._width = width
        self._column = 0
        self._tail_shown = False

    def write(self, event: TranslationEvent) -> None:
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
        self._column += columns_of(blank + text)

    def _end_line(self) -> None:
        if self._column:
            self._output.write("\n")
        self._column = 0

    def _show_tail(self, text: str) -> None:
        # A tail that wrapped could not be erased: it is cut at the right edge.
        room = self._width - 2 - self._column % self._width
        shown = next(cut_to_lines(text, room))
        if shown and columns_of(shown) <= room:
            self._output.write(f" {_DIM}{shown}{_PLAIN}{_LEFT.format(columns_of(shown) + 1)}")
            self._tail_shown = True

    def _erase_tail(self) -> None:
        if self._tail_shown:
            self._output.write(_ERASE_TO_END)
        self._tail_shown = False


class LabelledTextWriter:
    """Writes a line for every utterance and language, each after the language's tag."""

    def __init__(self, output: TextIO, options: TranslationOptions) -> None:
        self._output = output
        self._options = options
        self._texts: dict[str, str] = {}

    def write(self, event: TranslationEvent) -> None:
        match event:
            case Committed():
                for word in event.words:
                    text = self._texts.get(word.target_language, "")
                    blank = " " if word.starts_word and text else ""
                    self._texts[word.target_language] = text + blank + word.text
            case EndOfUtterance():
                self.close()
                if self._options.transcript and event.source_transcript:
                    self._output.write(f"  < {event.source_transcript}\n")
        self._output.flush()

    def close(self) -> None:
        for language, text in self._texts.items():
            if text:
                self._output.write(f"{language}: {text}\n")
            self._texts[language] = ""


class JsonLineWriter:
    """Writes JSON objects, one a line, as soon as they are known; fields: docs/protocol.md."""

    def __init__(self, output: TextIO, file: str, options: TranslationOptions) -> None:
        self._output = output
        self._file = file
        self._options = options
        self._languages = options.target_languages
        self._clock: ElapsedClock = "true"

    def write(self, event: TranslationEvent) -> None:
        match event:
            case Started():
                self._clock = event.elapsed_clock
                self._languages = event.options.target_languages
            case Committed():
                for word in event.words:
                    self._write_line("word", **describe_word(word, self._clock))
            case Tentative():
                self._write_line(
                    "tentative",
                    tentative=event.text,
                    utterance=event.utterance,
                    target_language=event.target_language,
                )
            case EndOfUtterance():
                for language in self._languages:
                    self._write_end(event, language)

    def close(self) -> None:
        """Nothing is left to write."""

    def _write_end(self, event: EndOfUtterance, language: str) -> None:
        heard = {"source_transcript": event.source_transcript} if self._options.transcript else {}
        span = event.not_understood
        self._write_line(
            "utterance_end",
            utterance=event.utterance,
            cause=event.cause,
            source_start_ms=round(event.start_ms, _DECIMALS),
            source_end_ms=round(event.end_ms, _DECIMALS),
            target_language=language,
            not_understood=describe_span(span) if span else None,
            **heard,
        )

    def _write_line(self, kind: str, **content: object) -> None:
        line = json.dumps({"type": kind, **content, "file": self._file}, ensure_ascii=False)
        self._output.write(f"{line}\n")
        self._output.flush()


def describe_word(word: CommittedWord, clock: ElapsedClock) -> dict[str, object]:
    item: dict[str, object] = {
        "text": word.text,
        "starts_word": word.starts_word,
        "utterance": word.utterance,
        "source_start_ms": round(word.source_start_ms, _DECIMALS),
        "source_end_ms": round(word.source_end_ms, _DECIMALS),
        "delay_ms": round(word.delay_ms, _DECIMALS),
        "elapsed_ms": round(word.elapsed_ms, _DECIMALS),
        "elapsed_clock": clock,
        "target_language": word.target_language,
        "confidence": round(word.confidence, _DECIMALS),
    }
    if word.stage_timings is not None:
        live = clock == "live"
        item["received_ms"] = round(word.received_ms, _DECIMALS)
        item["client_network_ms"] = round(word.client_network_ms, _DECIMALS) if live else None
        timings = asdict(word.stage_timings)
        item["stage_timings"] = {name: round(ms, _DECIMALS) for name, ms in timings.items()}
    return item


def describe_span(span: NotUnderstood) -> dict[str, float]:
    return {name: round(ms, _DECIMALS) for name, ms in asdict(span).items()}


class SubtitleWriter:
    """Writes captions as SubRip (``srt``) or WebVTT (``vtt``), each as soon as it is complete."""

    def __init__(self, output: TextIO, form: str, marks: CaptionMarks = NO_MARKS) -> None:
        self._output = output
        self._form = form
        self._captions = CaptionWriter(marks=marks)
        self._count = 0
        if form == "vtt":
            output.write(VTT_HEADER)
            output.flush()

    def write(self, event: TranslationEvent) -> None:
        match event:
            case Committed():
                for word in event.words:
                    self._show(self._captions.add(word))
            case EndOfUtterance():
                self._show(self._captions.end_utterance(event.not_understood))

    def close(self) -> None:
        self._show(self._captions.end_utterance())

    def _show(self, cues: list[Cue]) -> None:
        for cue in cues:
            self._count += 1
            vtt = self._form == "vtt"
            self._output.write(vtt_block(cue) if vtt else srt_block(self._count, cue))
            self._output.flush()


class JsonWriter:
    """Writes an object for each language at the end: ``file``, its text, words and captions."""

    def __init__(self, output: TextIO, file: str, marks: CaptionMarks = NO_MARKS) -> None:
        self._output = output
        self._file = file
        self._marks = marks
        self._words: dict[str, list[CommittedWord]] = {}
        self._not_understood: dict[int, NotUnderstood] = {}
        self._clock: ElapsedClock = "true"

    def write(self, event: TranslationEvent) -> None:
        match event:
            case Started():
                self._clock = event.elapsed_clock
                self._words = {language: [] for language in event.options.target_languages}
            case Committed():
                for word in event.words:
                    self._words.setdefault(word.target_language, []).append(word)
            case EndOfUtterance(not_understood=NotUnderstood() as span):
                self._not_understood[event.utterance] = span

    def close(self) -> None:
        for language, words in self._words.items():
            cues = captions_of(words, self._marks, self._not_understood)
            content = {
                "file": self._file,
                "target_language": language,
                "text": join_words(words),
                "words": [describe_word(word, self._clock) for word in words],
                "not_understood": list(map(describe_span, self._not_understood.values())),
                "cues": [asdict(cue) for cue in cues],
            }
            self._output.write(json.dumps(content, ensure_ascii=False) + "\n")
        self._output.flush()


EventWriter = TextWriter | LabelledTextWriter | JsonLineWriter | SubtitleWriter | JsonWriter
"""Takes events; ``close`` writes what is left, even after a failed translation."""


class StatusLine:
    """A terminal's last line, which is replaced until it is erased.

    Args:
        width: columns of the terminal: a line that wraps could not be replaced.
    """

    def __init__(self, output: TextIO, width: int) -> None:
        self._output = output
        self._width = width
        self._shown = ""

    def show(self, line: str) -> None:
        line = line[: self._width - 1]
        self._output.write(f"\r{line.ljust(len(self._shown))}")
        self._output.flush()
        self._shown = line

    def say(self, message: str) -> None:
        """Write a message on a line of its own, in place of this one."""
        self.erase()
        self._output.write(f"{message}\n")
        self._output.flush()

    def erase(self) -> None:
        if self._shown:
            self.show("")
            self._output.write("\r")
            self._output.flush()


class Progress:
    """Progress of a long translation: a line that counts up and is erased at the end.

    Args:
        width: columns of the terminal; 0 shows nothing.
    """

    def __init__(self, output: TextIO, name: str, width: int) -> None:
        self._line = StatusLine(output, width)
        self._name = name
        self._width = width
        self.duration_ms: float | None = None

    def write(self, event: TranslationEvent) -> None:
        if not self._width or not isinstance(event, SegmentDone):
            return
        line = f"{event.end_ms / 1000:.1f} s"
        if self.duration_ms:
            share = min(event.end_ms / self.duration_ms, 1.0)
            line += f" of {self.duration_ms / 1000:.1f} s ({share:.0%})"
        # A long name loses its beginning, so that the count is seen.
        name = self._name[-max(1, self._width - len(line) - 3) :]
        self._line.show(f"{name}: {line}")

    def say(self, message: str) -> None:
        self._line.say(f"earvoice: {self._name}: {message}")

    def close(self) -> None:
        self._line.erase()
