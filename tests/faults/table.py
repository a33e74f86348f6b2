"""The rows for people: on the screen as they come, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.row import Row

COLUMNS = (
    "fault",
    "replicas",
    "streams",
    "lost",
    "doubled",
    "longest gap, s",
    "recovered",
    "replays",
    "reconnects",
)
HEAD = """# Faults

What happens to live streams when something breaks. This page is written by `{command}`, which
exits with 1 when a row loses or doubles a word; the faults are in `tests/faults/`.

* **Streams** are sent by the client of this project at real time, half of them in `EVERY_SEGMENT`,
  half in `MERGE`. Replicas are processes on one machine; a killed one is started again after 1 s,
  as a supervisor would. Faults come 7 to 11 s after the beginning.
* **Lost, doubled**: words. In `EVERY_SEGMENT`, and in `MERGE` where nothing was merged, against the
  same recording undisturbed, word for word; else by the audio: every sample is inside one decided
  utterance, the server counts the words that the client has, and nothing is said again.
* **Longest gap**: the longest time in which any client heard of no work done. A segment lasts
  0.8 s, so a gap of about a second is what an undisturbed stream has.
* **Recovered**: streams that ended with their summary.
* **Replays**: how often a policy lost an encoder or a decoder and did its work again elsewhere;
  **reconnects**: how often a client went to another policy, or to the same one again. They show
  that the fault met the streams. A move at an utterance's end is neither.

{machine}

"""


@dataclass(frozen=True)
class Table:
    """Rows, and where they were taken.

    Attributes:
        command: what writes the page.
        machine: a sentence.
        rows: in order.
    """

    command: str
    machine: str
    rows: Sequence[Row]

    def page(self) -> str:
        """Return the page."""
        head = HEAD.format(command=self.command, machine=self.machine)
        ruler = ["---", *["---:"] * (len(COLUMNS) - 1)]
        lines = [_line(COLUMNS), _line(ruler), *(_line(row.cells()) for row in self.rows)]
        return head + "\n".join([*lines, *self._troubles()]) + "\n"

    def _troubles(self) -> list[str]:
        told = [
            f"* {row.fault}, {row.replica_count} of each: {trouble}"
            for row in self.rows
            for trouble in row.troubles
        ]
        return ["", "What was wrong besides:", "", *told] if told else []


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
