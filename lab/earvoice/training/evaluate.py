"""`make evaluate-model`: a row for each test set, streaming through the services.

Every set is translated by `earvoice evaluate`, which goes on where it stopped; nothing that has no
speech is scored: its words are counted.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SETS = (
    ("readers", "en"),
    ("readers-telephone", "en"),
    ("readers-noise", "en"),
    ("accent", "en"),
    ("chat", "de"),
    ("cocoa", "de"),
    ("cocoa", "es"),
    ("joined", "de"),
)
EARVOICE = Path(sys.executable).with_name("earvoice")


@dataclass(frozen=True)
class Scores:
    """What `scores.tsv` of a run says: metric and clock to value."""

    values: dict[tuple[str, str], str]

    @classmethod
    def read(cls, path: Path) -> Scores:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t")
            return cls({(row["metric"], row["clock"]): row["value"] for row in rows})

    def number(self, metric: str, clock: str = "") -> str:
        value = self.values.get((metric, clock))
        return "" if value is None else f"{float(value):.1f}"


def evaluate(sets: Path, name: str, tag: str, output: Path, *options: str) -> Path:
    """Translate one set, streaming or as a whole; return the run's folder."""
    folder = output / "-".join((name, tag, *(each.strip("-") for each in options)))
    files = ("--source", sets / name / "wavs.txt", "--target", sets / name / f"refs.{tag}.txt")
    command = [EARVOICE, "evaluate", *files, "--to", tag, "--output", folder, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{name} into {tag}: {done.stderr.strip()[-2000:]}"
        raise RuntimeError(message)
    return folder


def words_of_nothing(folder: Path) -> dict[str, int]:
    """How many words were written for each input that has none."""
    counts = {}
    for line in (folder / "instances.log").open(encoding="utf-8"):
        record = json.loads(line)
        counts[str(record["index"])] = len(record["prediction"].split())
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=Path, required=True, help="what earvoice.corpus wrote")
    parser.add_argument("--output", type=Path, required=True, help="logs, kept for the next start")
    options = parser.parse_args()
    row = "{:20} {:3} {:>6} {:>6} {:>8} {:>8}\n"
    sys.stdout.write(row.format("set", "to", "WER", "BLEU", "offline", "LAAL ms"))
    for name, tag in SETS:
        if not (options.sets / name / "wavs.txt").exists():
            sys.stdout.write(f"{name:20} {tag:3} is not there: its voices are not installed\n")
            continue
        scores = Scores.read(evaluate(options.sets, name, tag, options.output) / "scores.tsv")
        whole = evaluate(options.sets, name, tag, options.output, "--policy", "offline")
        quality = "WER" if tag == "en" else "BLEU"
        sys.stdout.write(
            row.format(
                name,
                tag,
                scores.number("WER") if tag == "en" else "",
                scores.number("BLEU") if tag != "en" else "",
                Scores.read(whole / "scores.tsv").number(quality),
                scores.number("LAAL", "ideal"),
            )
        )
        sys.stdout.flush()
    counts = words_of_nothing(evaluate(options.sets, "nothing", "en", options.output))
    kinds = (options.sets / "nothing" / "source.txt").read_text(encoding="utf-8").splitlines()
    for index, count in sorted(counts.items(), key=lambda item: int(item[0])):
        sys.stdout.write(f"a minute of {kinds[int(index)]}: {count} words\n")


if __name__ == "__main__":
    main()
