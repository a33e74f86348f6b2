"""Events as JSON lines: an object for every released item, and for what else was asked for."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from earvoice.client.event import Committed, CommittedWord, EndOfUtterance, Started, Tentative

if TYPE_CHECKING:
    from earvoice.client.event import ElapsedClock, TranslationEvent
    from earvoice.client.options import TranslationOptions

_DECIMALS = 3


class JsonLineWriter:
    """Writes the events of one translation, each line as soon as it is known.

    An item has ``text``, ``starts_word``, ``utterance``, ``source_start_ms``, ``source_end_ms``,
    ``delay_ms``, ``elapsed_ms``, ``elapsed_clock`` (``live`` or ``true``), ``target_language`` and
    ``file``; with stage timings also ``received_ms``, ``client_network_ms`` (null unless the
    session's clock is live) and ``stage_timings``. An interim tail has ``tentative``, a transcript
    ``source_transcript`` in place of ``text``.

    Args:
        output: where to.
        file: name of the source.
        options: what was asked for.
    """

    def __init__(self, output: TextIO, file: str, options: TranslationOptions) -> None:
        self._output = output
        self._file = file
        self._options = options
        self._clock: ElapsedClock = "true"

    def write(self, event: TranslationEvent) -> None:
        """Write what the event tells, if anything."""
        match event:
            case Started():
                self._clock = event.elapsed_clock
            case Committed():
                for word in event.words:
                    self._write_line(self._describe(word))
            case Tentative():
                self._write_line(
                    {
                        "tentative": event.text,
                        "utterance": event.utterance,
                        "target_language": event.target_language,
                    }
                )
            case EndOfUtterance() if self._options.transcript:
                self._write_line(
                    {
                        "source_transcript": event.source_transcript,
                        "utterance": event.utterance,
                        "source_start_ms": round(event.start_ms, _DECIMALS),
                        "source_end_ms": round(event.end_ms, _DECIMALS),
                    }
                )

    def close(self) -> None:
        """Nothing is left to write."""

    def _describe(self, word: CommittedWord) -> dict[str, object]:
        item: dict[str, object] = {
            "text": word.text,
            "starts_word": word.starts_word,
            "utterance": word.utterance,
            "source_start_ms": round(word.source_start_ms, _DECIMALS),
            "source_end_ms": round(word.source_end_ms, _DECIMALS),
            "delay_ms": round(word.delay_ms, _DECIMALS),
            "elapsed_ms": round(word.elapsed_ms, _DECIMALS),
            "elapsed_clock": self._clock,
            "target_language": word.target_language,
        }
        if word.stage_timings is not None:
            live = self._clock == "live"
            item["received_ms"] = round(word.received_ms, _DECIMALS)
            item["client_network_ms"] = round(word.client_network_ms, _DECIMALS) if live else None
            timings = asdict(word.stage_timings)
            item["stage_timings"] = {name: round(ms, _DECIMALS) for name, ms in timings.items()}
        return item

    def _write_line(self, content: dict[str, object]) -> None:
        line = json.dumps({**content, "file": self._file}, ensure_ascii=False)
        self._output.write(f"{line}\n")
        self._output.flush()
