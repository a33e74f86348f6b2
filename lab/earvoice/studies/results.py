r"""The results page: the papers' claims tested on a model's own logs, and their other systems.

    python -m earvoice.studies.results inputs SET --to de --count 100 --output INPUTS
    earvoice record --source INPUTS/wavs.txt --target INPUTS/refs.txt --model DIR \
        --segment 250,800 --output REC
    python -m earvoice.studies.results settings REC > settings.txt
    earvoice replay REC --model DIR --settings settings.txt --output REPLAYS
    python -m earvoice.studies.results page --run NAME REC REPLAYS INPUTS/words.jsonl --page PAGE

Each run is a test set and gets its own column. Translations are judged by BLEU, captions by the
percentage of words that are right. Folders that ``earvoice evaluate`` or ``curves`` wrote under the
same names do as well as replays.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import soundfile

from earvoice.evaluation.bootstrap import RESAMPLES, SEED, Estimate, estimate
from earvoice.evaluation.curves import as_tsv, draw_curves, point_rows, quality_at
from earvoice.evaluation.recording import read_served_model
from earvoice.evaluation.run_folder import SETTINGS_NAME, read_settings
from earvoice.evaluation.score import ScoringOptions
from earvoice.evaluation.script import run_script
from earvoice.studies.claims import (
    CLAIMS,
    CURVES,
    FEWEST_SETTINGS,
    FOLLOWERS,
    HELD,
    LATENCIES_MS,
    UNDECIDED,
    Claim,
    Finding,
    Study,
    families,
    lags_ms,
    rank_correlation,
    read_study,
    shown,
    shown_name,
    together,
    with_interval,
)
from earvoice.systems.rows import Difference, Row, read_rows

SHORTEST_S, LONGEST_S = 5.0, 11.0
"""On shorter inputs policies hardly differ; a replay's cost grows with the square of the length."""
_DRAWN = ("EDAtt", "AlignAtt", "LA-2", "Hold-6", "wait-k, adaptive", "wait-k, fixed")


def choose_inputs(folder: Path, language: str, count: int, output: Path) -> None:
    """Write the first inputs of a held-out set that are neither short nor long."""
    paths = (folder / "wavs.txt").read_text("utf8").splitlines()
    lengths_s = [soundfile.info(path).duration for path in paths]
    chosen = [n for n, it in enumerate(lengths_s) if SHORTEST_S <= it <= LONGEST_S][:count]
    output.mkdir(parents=True, exist_ok=True)
    names = {
        f"refs.{language}.txt": "refs.txt",
        "words.jsonl": "words.jsonl",
        "wavs.txt": "wavs.txt",
    }
    for name, written in names.items():
        if (folder / name).exists():
            lines = (folder / name).read_text("utf8").splitlines()
            (output / written).write_text("".join(f"{lines[n]}\n" for n in chosen), "utf8")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, ruler, *rows)]


_INTRODUCTION = f"""\
# Results

This page tests what the papers claim about decision policies, with this project's own small model,
on synthetic conversations and on recordings of real people. `make results` generates it from logs
of replays; the settings, tests and thresholds are in `lab/earvoice/studies/claims.py`.
[results.tsv](results.tsv) lists all settings with all numbers.

## How to read it

* **Quality** is BLEU for translations. For captions, which are in the speaker's own language, it is
  the percentage of words that are right, 100 - WER. A point is one BLEU point or one percentage
  point.
* **Latency** is LAAL on the ideal clock unless a column says otherwise, and AL where a claim is
  about AL. The clock `simuleval` adds all computation since the first segment, as published AL_CA
  does; `true` lets computation overlap with audio ([clocks](evaluation.md#clocks)).
* **A word** is released in the segment that commits its last token; commits are cut back to word
  boundaries. Guards are on; no word is held back for low confidence. Endpointing is off, each input
  is one utterance, and every segment is decided.
* **Computation** is CPU time on one core ([replay](evaluation.md#replay-lab)).
* **True lag** is the release of a word minus the end of the spoken word that it attends to. The
  synthesiser knows when each word was said; in recordings of people, the model's CTC head finds it
  ([word times](evaluation.md#word-times-of-recordings)). The model's attention says which spoken
  word a translated word belongs to.
* **[low, high]** is the 95 % interval of a paired bootstrap over inputs, {RESAMPLES} draws, seed
  {SEED}. If a difference is smaller than 1 point, or its interval contains 0, the answer is
  "undecided". A claim with several parts agrees if all parts agree, and disagrees if any part
  disagrees. A part is "not tested" if its settings were not run, or if its two curves have no
  latency in common.
* **Inputs needed** is how many inputs would decide an undecided answer. An interval shrinks with
  the square root of the number of inputs; with this many, it would extend no farther to either side
  than the smallest difference that counts. An undecided answer without this number already has an
  interval this short: the difference is too small to count, or part of the claim was not tested.
* **Quality at a latency** is interpolated between the two neighbouring settings (Papi 2023,
  footnote 8). The difference of two curves is the mean over all latencies that both reach."""


def write_page(
    studies: Sequence[Study],
    sessions: Sequence[dict[str, object]],
    figures: Sequence[str],
    systems: tuple[Sequence[Row], Sequence[Difference]] = ((), ()),
) -> str:
    """Return the page; each study comes with its run's session and its figure."""
    answers = [(claim, [claim.judge(study) for study in studies]) for claim in CLAIMS]
    titles = [study.title for study in studies]
    blocks = [
        [_INTRODUCTION],
        ["## What was run", "", *_describe_runs(studies, sessions)],
        [
            "## Answers",
            "",
            *table(
                ("claim", *titles),
                (
                    (f"{n}. {claim.statement} ({claim.source})", *map(_answer, judged))
                    for n, (claim, judged) in enumerate(answers, 1)
                ),
            ),
        ],
        ["## Claims"],
        *(_describe_claim(n, *answer, titles) for n, answer in enumerate(answers, 1)),
        *(block for pair in zip(studies, figures, strict=True) for block in _describe_study(*pair)),
        ["## The papers' other systems", "", *_describe_systems(*systems)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


_FIGURE_TEXT = (
    "Bands are 95 % intervals of quality alone. Neighbouring policies move together from draw to "
    "draw, so policies can differ even where their bands overlap."
)
_HELD_TEXT = (
    "`target_lag_ms` adjusts a policy's own parameter to hold a mean word lag: release minus the "
    "end of the audio that the word attends to, as the service measures it. Each input is a "
    "session of its own, so the adjustment starts afresh; the goal is to be off by 20 % or less."
)
_LAG_TEXT = (
    "How well each metric follows the true lag: their rank correlation (Spearman) over the "
    "settings' means, and their mean absolute difference."
)
_SYSTEMS_TEXT = (
    "`python -m earvoice.systems NAME` trains each system at small size; [the papers, row by "
    "row](papers.md) says on which data, and how they differ from the papers. The trivial "
    "baseline always writes the most common training sentence."
)


def _answer(findings: Sequence[Finding]) -> str:
    """Answer a claim on one test set, with the number of inputs that would decide all its parts."""
    answer = together([finding.answer for finding in findings])
    needed = max((finding.inputs_needed or 0 for finding in findings), default=0)
    return f"{answer}, {needed:,} inputs needed" if answer == UNDECIDED and needed else answer


def _describe_runs(
    studies: Sequence[Study], sessions: Sequence[dict[str, object]]
) -> Iterator[str]:
    header = ("run", "model", "version", "hash", "inputs", "s an input", "settings", "quality")
    rows = []
    for study, session in zip(studies, sessions, strict=True):
        instances = study.first.instances
        audio_s = sum(instance.source_length_ms for instance in instances) / 1000
        rows.append(
            (
                study.title,
                f"`{session['model']}`",
                str(session["model_version"]),
                f"`{str(session['model_hash'])[:12]}`",
                str(len(instances)),
                shown(audio_s / len(instances), 1),
                str(len(study.points)),
                study.measure,
            )
        )
    yield from table(header, rows)
    qualities = [study.first.report.quality for study in studies]
    signatures = {quality.bleu_signature: None for quality in qualities if quality}
    yield ""
    yield (
        f"earvoice {version('earvoice')}" + "".join(f"; sacreBLEU `{s}`" for s in signatures) + "."
    )


def _describe_study(study: Study, figure: str) -> Iterator[list[str]]:
    yield [
        f"## Curves: {study.title}",
        "",
        f"![{study.measure} over latency]({figure})",
        "",
        _FIGURE_TEXT,
    ]
    yield [f"{study.measure} at a LAAL:", "", *_latency_table(study)]
    yield [_HELD_TEXT, "", *_held_table(study)]
    yield [_LAG_TEXT, "", *_follower_table(study)]


def _describe_systems(rows: Sequence[Row], differences: Sequence[Difference]) -> list[str]:
    if not rows:
        return ["Not run."]
    header = (
        "system", "paper", "trained", "written with", "test set", "inputs", "BLEU", "WER", "LAAL",
        "trivial baseline's BLEU",
    )  # fmt: skip
    cells = (
        (
            row.system,
            row.paper,
            row.trained,
            row.written_with,
            row.test_set,
            str(row.inputs),
            with_interval(Estimate(row.bleu, row.bleu_low, row.bleu_high), "BLEU"),
            shown(row.wer, 1),
            f"{shown(row.laal, 1 if row.laal_unit == 'words' else 0)} {row.laal_unit}",
            shown(row.baseline_bleu, 1),
        )
        for row in rows
    )
    compared = (
        (it.system, it.compared, f"{with_interval(it.estimate, 'BLEU')} {it.unit}")
        for it in differences
    )
    return [
        _SYSTEMS_TEXT,
        "",
        *table(header, cells),
        "",
        "Paired differences:",
        "",
        *table(("system", "compared", "difference"), compared),
    ]


def _latency_table(study: Study) -> list[str]:
    rows = []
    for name in CURVES:
        curve = study.curve(name, "LAAL")
        if curve is not None:
            points = study.family(name)
            low, high = curve[0][:, 0].min() / 1000, curve[0][:, 0].max() / 1000
            found = (
                quality_at(points, at_ms, "LAAL", "ideal", study.bootstrap, study.measure)
                for at_ms in LATENCIES_MS
            )
            cells = [with_interval(estimate(quality), study.measure) for quality in found]
            rows.append((name, f"{low:.2f} to {high:.2f}", *cells))
    columns = [f"{at_ms / 1000:g} s" for at_ms in LATENCIES_MS]
    return table(("policy", "LAAL, s", *columns), rows)


def _describe_claim(
    number: int, claim: Claim, judged: Sequence[Sequence[Finding]], titles: Sequence[str]
) -> list[str]:
    rows = ((same[0].text, *map(str, same)) for same in zip(*judged, strict=True))
    told = ("**Answer**", *(f"**{_answer(findings)}**" for findings in judged))
    return [
        f"### {number}. {claim.statement}",
        "",
        f"{claim.source}. Agrees if: {claim.rule}.",
        "",
        *table(("compared", *titles), (*rows, told)),
    ]


def _held_table(study: Study) -> list[str]:
    rows = []
    for point in (point for policy in HELD for point in study.family(f"{policy}, lag held")):
        asked_ms, held_ms = float(point.choices["lag"]), study.lag_ms(point, "word lag")
        rows.append(
            (
                shown_name(point.name),
                with_interval(estimate(held_ms), "ms"),
                f"{100 * (held_ms[0] / asked_ms - 1):+.0f} %",
                shown(point.latency("LAAL", "ideal"), 0),
                with_interval(estimate(study.quality(point)), study.measure),
            )
        )
    header = ("setting", "held, ms", "off by", "LAAL, ms", study.measure)
    return table(header, rows) if rows else ["Not run."]


def _follower_table(study: Study) -> list[str]:
    metrics = ("spoken lag", *FOLLOWERS)
    points = [
        point
        for point in study.distinct
        if all(point.latency(metric, "ideal") is not None for metric in metrics)
    ]
    if len(points) < FEWEST_SETTINGS:
        return ["Not known: the true lag needs word times and at least ten settings."]
    true_ms = lags_ms(study, points, "spoken lag")
    rows = []
    for metric in FOLLOWERS:
        told_ms = lags_ms(study, points, metric)
        error_ms = estimate(np.abs(told_ms - true_ms).mean(-1))
        rho = with_interval(estimate(rank_correlation(told_ms, true_ms)), "rho")
        rows.append((metric, rho, with_interval(error_ms, "ms")))
    return table(("metric", "over settings", "error, ms"), rows)


def report(studies: Mapping[Path, Study], page: Path, systems: Path | None = None) -> None:
    """Write the page, and beside it the figures and the table of all numbers.

    Args:
        studies: by the folders of their replays.
        systems: folder of the papers' other systems.
    """
    sessions, figures, rows = [], [], []
    for folder, study in studies.items():
        sessions.append(read_settings(folder / study.first.name / SETTINGS_NAME)["session"])
        lines = [(name, tuple(study.family(name))) for name in _DRAWN if study.family(name)]
        name = "-".join((page.stem, *study.name.lower().split()))
        figure = page.with_name(f"{name}.svg")
        draw_curves(lines, "LAAL", ("ideal", "true"), study.bootstrap, figure, study.measure)
        figures.append(figure.name)
        every = [(point.policy, (point,)) for point in study.points.values()]
        rows += [{"run": study.title, **row} for row in point_rows(every, study.bootstrap)]
    page.with_suffix(".tsv").write_text(as_tsv(rows), "utf8")
    others = read_rows(systems) if systems else ([], [])
    page.write_text(write_page(list(studies.values()), sessions, figures, others), encoding="utf8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m earvoice.studies.results")
    steps = parser.add_subparsers(dest="step", required=True)
    inputs = steps.add_parser("inputs", help="choose inputs of a held-out set")
    inputs.add_argument("set", type=Path, help="folder of the held-out set")
    inputs.add_argument(
        "--to", required=True, metavar="LANGUAGE", help="language of the references"
    )
    inputs.add_argument("--count", type=int, required=True, help="maximum number of inputs")
    inputs.add_argument("--output", type=Path, required=True, metavar="DIR")
    settings = steps.add_parser("settings", help="print the settings to replay, one per line")
    settings.add_argument("recording", type=Path, help="output folder of earvoice record")
    page = steps.add_parser("page", help="write the page, its figures and its table")
    page.add_argument(
        "--run",
        nargs="+",
        action="append",
        required=True,
        metavar="PART",
        help="a column: its name, the output folders of earvoice record and earvoice replay, and "
        "the word times (JSON lines) if known",
    )
    page.add_argument("--systems", type=Path, help="work folder of python -m earvoice.systems")
    page.add_argument("--page", type=Path, default=Path("docs/results.md"), help="(%(default)s)")
    options = parser.parse_args()
    if options.step == "inputs":
        choose_inputs(options.set, options.to, options.count, options.output)
        return
    if options.step == "settings":
        served = read_served_model(options.recording)
        described = served.description
        own = families(described.decoder_layer_count, described.decoder_head_count)
        names = dict.fromkeys(name for several in own.values() for name in several)
        sys.stdout.write("".join(f"{name}\n" for name in names))
        return
    if any(len(parts) not in (3, 4) for parts in options.run):
        page.error("--run takes a name, a recording, its replays and, if known, word times")
    studies = {}
    for name, recording, replays, *words in options.run:
        served = read_served_model(Path(recording))
        studies[Path(replays)] = read_study(
            Path(replays),
            served.description.decoder_layer_count,
            served.description.decoder_head_count,
            ScoringOptions(words=Path(words[0]) if words else None),
            name,
            served.description.source_language_code,
        )
    report(studies, options.page, options.systems)


if __name__ == "__main__":
    run_script(main)
