"""`make evaluate-model`: a row for each test set, streaming through the services.

Every set is translated by `earvoice evaluate`, which continues where it stopped. "begun" is the
percentage of captions that have something for the first word spoken, "right" of those that have
this very word among their first three; "labels" is the WER of the source transcript, which CTC's
labels spell; for sets without speech, the words written are counted.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile

from earvoice.evaluation.log import Record, read_records
from earvoice.evaluation.quality import count_errors, plain_words, word_error_rate
from earvoice.evaluation.script import run_script
from earvoice.training.teacher import loops

if TYPE_CHECKING:
    from collections.abc import Sequence

SETS = (
    ("readers", "en"),
    ("readers-telephone", "en"),
    ("readers-noise", "en"),
    ("accent", "en"),
    ("answers", "en"),
    ("chat", "de"),
    ("cocoa", "de"),
    ("cocoa", "es"),
    ("joined", "de"),
)
SILENT_SETS = ("nothing", "languages")
"""Sets without any English speech."""
FIRST_WORDS = 3
EARVOICE = Path(sys.executable).with_name("earvoice")


def read_scores(run: Path) -> defaultdict[tuple[str, str], str]:
    """Scores from a run's `scores.tsv`: metric and clock to value; empty if missing."""
    with (run / "scores.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        numbers = {(row["metric"], row["clock"]): f"{float(row['value']):.1f}" for row in rows}
    return defaultdict(str, numbers)


def evaluate(sets: Path, name: str, tag: str, output: Path, *options: str) -> Path:
    """Translate one set, streaming or as a whole; return the run's folder."""
    folder = output / "-".join((name, tag, *(each.strip("-") for each in options)))
    files = ("--source", sets / name / "wavs.txt", "--target", sets / name / f"refs.{tag}.txt")
    log = ("--output", folder, "--transcript")
    command = [EARVOICE, "evaluate", *files, "--to", tag, *log, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{name} into {tag}: {done.stderr.strip()[-2000:]}"
        raise RuntimeError(message)
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def read_run(folder: Path) -> list[Record]:
    """The log's record of each input, in the inputs' order."""
    return sorted(
        read_records(folder / "instances.log"), key=lambda record: record.integer("index")
    )


def predictions(run: Sequence[Record]) -> list[str]:
    """The text written for each input."""
    return [record.text("prediction") for record in run]


def heard(run: Sequence[Record]) -> list[str]:
    """The source transcript of each input."""
    return [
        " ".join(utterance.text("source_transcript") for utterance in record.records("utterances"))
        for record in run
    ]


def first_words(written: Sequence[str], said: Sequence[str]) -> tuple[float, float]:
    """Percentages of inputs whose first word has a counterpart; has it among the first three."""
    begun = right = 0
    for given, wanted in zip(map(plain_words, written), map(plain_words, said), strict=True):
        # If the first word was left out, dropping it from the reference saves an error.
        begun += count_errors(given, wanted) <= count_errors(given, wanted[1:])
        right += wanted[0] in given[:FIRST_WORDS]
    return 100 * begun / len(said), 100 * right / len(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=Path, required=True, help="what earvoice.corpus wrote")
    parser.add_argument("--output", type=Path, required=True, help="logs, kept for the next start")
    options = parser.parse_args()
    row = "{:20} {:3} {:>6} {:>6} {:>8} {:>8} {:>6} {:>6} {:>6}\n"
    titles = ("set", "to", "WER", "BLEU", "offline", "LAAL ms", "begun", "right", "labels")
    sys.stdout.write(row.format(*titles))
    looping, seconds = 0, 0.0
    for name, tag in SETS:
        files = options.sets / name
        if not (files / "wavs.txt").exists():
            sys.stdout.write(f"{name:20} {tag:3} is not there: its voices are not installed\n")
            continue
        folder = evaluate(options.sets, name, tag, options.output)
        scores = read_scores(folder)
        whole = evaluate(options.sets, name, tag, options.output, "--policy", "offline")
        quality = "WER" if tag == "en" else "BLEU"
        run = read_run(folder)
        written = predictions(run)
        looping += sum(map(loops, written))
        seconds += sum(soundfile.info(path).duration for path in lines(files / "wavs.txt"))
        said = lines(files / "source.txt")
        first = first_words(written, said) if tag == "en" else ("", "")
        sys.stdout.write(
            row.format(
                name,
                tag,
                scores["WER", ""] if tag == "en" else "",
                scores["BLEU", ""] if tag != "en" else "",
                read_scores(whole)[quality, ""],
                scores["LAAL", "ideal"],
                *(f"{share:.1f}" if share != "" else "" for share in first),
                f"{100 * word_error_rate(heard(run), said):.1f}",
            )
        )
        sys.stdout.flush()
    sys.stdout.write(f"inputs that loop: {looping} in {seconds / 3600:.1f} hours\n")
    for name in SILENT_SETS:
        silent = predictions(read_run(evaluate(options.sets, name, "en", options.output)))
        for kind, text in zip(lines(options.sets / name / "source.txt"), silent, strict=True):
            sys.stdout.write(f"a minute of {kind}: {len(text.split())} words\n")


if __name__ == "__main__":
    run_script(main)
