"""`python -m tests.faults`: break things under live streams, and tell what became of the words."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from earvoice.runtime.settings import shipped_model_path
from tests.faults.bench import BenchPlan, Row, isolate, run_bench, say

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

What happens to live streams when something breaks. `{command}` writes this page, and
exits with 1 if a row loses or doubles a word; the faults are in `tests/faults/`.

* **Streams**: this project's client sends them in real time, half in `EVERY_SEGMENT`, half in
  `MERGE`. Replicas are processes on one machine; a killed one is started again after 1 s, as a
  supervisor would. Faults strike 7 to 11 s after the start.
* **Lost, doubled**: words. In `EVERY_SEGMENT`, and in `MERGE` if nothing was merged, the text is
  compared word for word with that of the same recording undisturbed. Otherwise the audio is
  checked: each sample is in exactly one decided utterance, the server's word count equals the
  client's, and no words are repeated for the same audio.
* **Longest gap**: the longest time in which any client saw no progress. A segment lasts 0.64 s, so
  even an undisturbed stream has gaps of about a second.
* **Recovered**: streams that ended with their summary.
* **Replays**: how often a policy service lost an encoder or a decoder and repeated its work on
  another; **reconnects**: how often a client switched to another policy service or returned to the
  same one. Both show that the fault reached the streams. A move at the end of an utterance counts
  as neither.

{machine}

"""


@dataclass(frozen=True)
class Table:
    """Rows, and where they were taken."""

    command: str
    machine: str
    rows: Sequence[Row]

    def page(self) -> str:
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


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition(": ")[2])
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose names hold these")
    parser.add_argument("--replicas", nargs="+", type=int, choices=(1, 2), default=[2, 1])
    parser.add_argument("--streams", type=int, help="instead of 4 on two replicas and 10 on one")
    parser.add_argument("--seconds", type=int, help="length of every stream")
    parser.add_argument("--seed", type=int, default=1, help="says when faults happen")
    parser.add_argument("--page", type=Path, help="write the table to this page")
    parser.add_argument("--logs", type=Path, help="keep the services' logs in this empty folder")
    return parser.parse_args()


async def run(plan: BenchPlan, folder: Path, page: Path | None) -> bool:
    """Run all rows, keep the page up with them, and return whether all are good."""
    load = os.getloadavg()[0]
    machine = (
        f"Taken with {_model()} on {os.cpu_count()} cores,\n{platform.system()} "
        f"{platform.machine()}; load average {load:.1f} when it began."
    )
    rows: list[Row] = []
    async for some in run_bench(plan, folder):
        rows += some
        if page:
            text = Table("make faults", machine, rows).page()
            await asyncio.to_thread(page.write_text, text, encoding="utf8")
    return all(row.is_good for row in rows)


def _model() -> str:
    """Name and version of the model that the replicas hold."""
    folder = Path(os.environ.get("EARVOICE_DECODER_MODEL_PATH") or shipped_model_path())
    model = json.loads((folder / "config.json").read_text(encoding="utf8"))["model"]
    return f"version {model['version']} of the model `{model['name']}`"


def main() -> int:
    arguments = read_arguments()
    isolated = isolate(__spec__.parent)
    if not isolated:
        say("no root, or no iptables: the rows about lost packets and a full disk are left out")
    plan = BenchPlan(
        only=arguments.only,
        replica_counts=arguments.replicas,
        stream_count=arguments.streams,
        stream_s=arguments.seconds,
        seed=arguments.seed,
        isolated=isolated,
    )
    with tempfile.TemporaryDirectory(prefix="earvoice-faults-") as temporary:
        folder = arguments.logs or Path(temporary)
        return 0 if asyncio.run(run(plan, folder, arguments.page)) else 1


sys.exit(main())
