"""Result files that grow line by line, and survive a killed run."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from earvoice.cli.command import CommandError
from earvoice.cli.output import StatusLine
from earvoice.evaluation.instance import Unit
from earvoice.evaluation.log import LogError, Record, parse_object, read_records
from earvoice.evaluation.log_formats import describe_runs
from earvoice.evaluation.source_set import SourceRecording
from earvoice.runtime.files import atomic_write, drop_torn_line

_MS_PER_MINUTE = 60_000
# Progress lines for a whole test set without a terminal, so that they do not fill a log.
_LINES = 10


class RunProgress:
    """A line that counts up on a terminal; elsewhere a new line for each tenth."""

    def __init__(self, name: str, total: int, finished: int) -> None:
        self._line = StatusLine(sys.stderr, shutil.get_terminal_size().columns)
        self._name = name
        self._total = total
        self._finished = finished
        self._failed = 0
        self._audio_ms = 0.0
        self._on_terminal = sys.stderr.isatty()

    def count(self, audio_ms: float) -> None:
        self._finished += 1
        self._audio_ms += audio_ms
        if self._on_terminal:
            self._line.show(self._counts())
        elif self._finished * _LINES // self._total > (self._finished - 1) * _LINES // self._total:
            self._line.say(self._counts())

    def fail(self, message: str) -> None:
        self._failed += 1
        self._line.say(message)

    def close(self) -> None:
        self._line.erase()

    def _counts(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return (
            f"{self._name}: {self._finished} of {self._total} recordings{failed}, "
            f"{self._audio_ms / _MS_PER_MINUTE:.1f} min of audio"
        )


# SimulEval requires source and target in config.yaml. It rewrites the file whenever it scores, so
# nothing else can be kept there.
LOG_NAME = "instances.log"
SIMULSTREAM_NAME = "simulstream.jsonl"
SETTINGS_NAME = "evaluation.json"

_UNTOLD = {"transcript": False}
"""Settings that earlier runs do not tell, and what they were then; others were not there: None."""

Settings = Mapping[str, Any]


class EvaluationFolder:
    """One run's folder.

    Args:
        settings: what was requested; must include everything that changes results.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.log = path / LOG_NAME
        self._settings_path = path / SETTINGS_NAME
        stored = self._read_settings()
        if stored is None and self.log.exists():
            raise CommandError(
                f"{self.log} is not of a run that could go on here ({SETTINGS_NAME} is missing): "
                "give another --output"
            )
        # Through JSON and back, so that tuples compare equal to what was stored.
        self._settings: dict[str, Any] = json.loads(json.dumps(settings))
        drop_torn_line(self.log)
        # Without a finished recording, other settings contradict nothing.
        if stored is not None and self._has_records():
            self._settings |= {"session": stored["session"]} if "session" in stored else {}
            self._check_same(_with_names(stored), _with_names(self._settings))
        self._write(self._settings_path, [json.dumps(self._settings, indent=2, ensure_ascii=False)])
        source = "text" if settings.get("source_type") == "text" else "speech"
        self._write(path / "config.yaml", [f"source_type: {source}", "target_type: text"])

    def finished(self) -> frozenset[int]:
        """Return the indices of the recordings finished, in this run or an earlier one."""
        return frozenset(int(record.number("index")) for record in self._records())

    def check_sources(self, sources: Iterable[SourceRecording]) -> None:
        """Check that what is finished belongs to the test set that is to be continued."""
        wanted = {source.index: source for source in sources}
        for record in self._records():
            index = int(record.number("index"))
            path, *text = record.texts("source")
            length_ms, reference = record.number("source_length"), record.text("reference")
            found = SourceRecording(index, Path(path), length_ms, reference, *text)
            if index not in wanted:
                raise CommandError(
                    f"{self.path} holds a run of another test set: recording {index} is {path} "
                    "there, and none of the recordings now; give another --output"
                )
            if not found.is_same(wanted[index]):
                raise CommandError(
                    f"{self.path} holds a run of another test set: recording {index} is {path} "
                    f"there, {wanted[index].path} with its reference now; give another --output"
                )

    def check_session(self, session: Settings) -> None:
        """Store the server's description of the first session.

        Later ones must match it: half a run with another model is not a result.
        """
        session = json.loads(json.dumps(session))
        if "session" not in self._settings:
            self._settings["session"] = session
            lines = [json.dumps(self._settings, indent=2, ensure_ascii=False)]
            self._write(self._settings_path, lines)
        self._check_same(self._settings["session"], session, "session.")

    def check_session_so_far(self, known: Settings) -> None:
        """Check what is known of a session before it begins against the sessions so far."""
        if before := self._settings.get("session"):
            self._check_same({name: before.get(name) for name in known}, known, "session.")

    def append(self, line: Settings) -> None:
        """Add a finished recording; a later failure does not lose it."""
        with self.log.open("a", encoding="utf8") as file:
            file.write(f"{json.dumps(line, ensure_ascii=False)}\n")

    def complete(self, unit: Unit) -> None:
        """Sort the log into the order of the test set and write simulstream's log beside it."""
        records = sorted(self._records(), key=lambda record: record.number("index"))
        self._write(self.log, [json.dumps(record.fields, ensure_ascii=False) for record in records])
        lines = [json.dumps(line, ensure_ascii=False) for line in describe_runs(records, unit)]
        self._write(self.path / SIMULSTREAM_NAME, lines)

    def _records(self) -> list[Record]:
        records = read_records(self.log) if self._has_records() else []
        counts = Counter(record.number("index") for record in records)
        for index, count in counts.items():
            if count > 1:
                raise LogError(str(self.log), f"has {count} lines of index {index:g}: must be one")
        return records

    def _has_records(self) -> bool:
        return self.log.exists() and self.log.stat().st_size > 0

    def _read_settings(self) -> dict[str, Any] | None:
        if not self._settings_path.exists():
            return None
        try:
            return dict(read_settings(self._settings_path))
        except LogError as error:
            raise CommandError(f"{error}: give another --output") from error

    def _check_same(self, before: Settings, now: Settings, place: str = "") -> None:
        for name in sorted(before.keys() | now.keys()):
            old, new = (side.get(name, _UNTOLD.get(name)) for side in (before, now))
            if isinstance(old, dict) and isinstance(new, dict):
                self._check_same(old, new, f"{place}{name}.")
            elif old != new:
                raise CommandError(
                    f"{self.path} holds a run with another {place}{name}: {_shorten(old)} there, "
                    f"{_shorten(new)} now; give another --output"
                )

    @staticmethod
    def _write(path: Path, lines: Iterable[str]) -> None:
        """Replace a file atomically, so that a killed run leaves the old one or the new one."""
        with atomic_write(path) as partial:
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf8")


def read_settings(path: Path) -> Settings:
    return parse_object(str(path), path.read_bytes()).fields


def _with_names(settings: Settings) -> Settings:
    """Return settings with the recordings' names instead of paths: their folder may have moved."""
    if "recordings" not in settings:
        return settings
    named = [[Path(path).name, digest] for path, digest in settings["recordings"]]
    return {**settings, "recordings": named}


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:197]}..."  # noqa: PLR2004 - two lines of a terminal
