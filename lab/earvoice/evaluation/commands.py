"""``earvoice record``, ``replay``, ``calibrate``, ``precision``; how a command computes here.

torch is imported only when such a command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import Command, CommandError, ExitCode, number_from
from earvoice.client.errors import AudioSourceError
from earvoice.evaluation.instance import primary_language
from earvoice.evaluation.log import read_lines
from earvoice.evaluation.recording import Grid, Recording
from earvoice.evaluation.replay.setting import ReplaySetting, parse_settings
from earvoice.evaluation.run_folder import RunProgress
from earvoice.evaluation.source_set import SourceRecording, read_sources
from earvoice.models.errors import ModelError
from earvoice.policies import PolicyLoadError
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.settings import shipped_model_path
from earvoice.runtime.stream_ranges import SEGMENT_MS

if TYPE_CHECKING:
    from earvoice.models.precision import PrecisionTrial

DEFAULT_GRIDS = "250,280,800"
"""LA-n, Hold-n and SP-n at 250, 500, 1000 and 2000 ms; wait-k; EDAtt and AlignAtt."""

_PRECISIONS = ("bf16", "int8")
_CALIBRATED_LAG_MS = 2000.0


@contextmanager
def computing() -> Iterator[None]:
    """Run computation in this process; errors become readable messages."""
    # OpenMP reads this when torch is imported; spinning threads slow the whole machine down.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        yield
    except ModelError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except AudioSourceError as error:
        raise CommandError(error.message, ExitCode.INPUT) from error
    except (EarvoiceError, PolicyLoadError) as error:
        raise CommandError(str(error)) from error


def find_checkpoint(path: Path) -> Path:
    """Return the only ``.pt`` file of a folder; otherwise the path itself."""
    if not path.exists():
        raise CommandError(f"{path}: no such file or folder", ExitCode.INPUT)
    files = sorted(path.glob("*.pt")) if path.is_dir() else []
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CommandError(f"{path}: has several checkpoints ({names}): name one")
    return files[0] if files else path


def add_recording_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording",
        metavar="RECORDING",
        type=Path,
        help="output folder of earvoice record, or of earvoice evaluate --record",
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        default=shipped_model_path(),
        help="checkpoint (the shipped model)",
    )
    parser.add_argument("--to", metavar="TAG", help="target language (the model's first)")
    parser.add_argument("--limit", metavar="N", type=int, help="use only the first N inputs")


def _add_test_set_arguments(
    parser: argparse.ArgumentParser, *, with_model: bool, required: bool = True
) -> None:
    parser.add_argument(
        "--source",
        metavar="FILE",
        type=Path,
        required=required,
        help="paths of recordings, one per line",
    )
    parser.add_argument(
        "--target",
        metavar="FILE",
        type=Path,
        required=required and with_model,
        help="their reference translations, one per line",
    )
    if with_model:
        parser.add_argument(
            "--model",
            metavar="DIR",
            type=Path,
            required=True,
            help="checkpoint; the result goes into its config.json",
        )
        parser.add_argument("--to", metavar="TAG", help="target language (the model's first)")
        parser.add_argument(
            "--dry-run", action="store_true", help="print the result without writing it"
        )


def _read_sources(options: argparse.Namespace) -> tuple[SourceRecording, ...]:
    return read_sources(options.source, read_lines(options.target) if options.target else None)


def check_segment_ms(segment_ms: int) -> None:
    if not SEGMENT_MS[0] <= segment_ms <= SEGMENT_MS[1]:
        raise CommandError(
            f"--segment = {segment_ms} is not allowed; allowed: {SEGMENT_MS[0]} to {SEGMENT_MS[1]}"
        )


def _add_record_arguments(parser: argparse.ArgumentParser) -> None:
    _add_test_set_arguments(parser, with_model=False)
    parser.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        default=shipped_model_path(),
        help="checkpoint (the shipped model)",
    )
    parser.add_argument(
        "--segment",
        metavar="MS[+WAIT],...",
        default=DEFAULT_GRIDS,
        help="segments that replays may use, with or without an initial wait; multiples of a "
        "segment are included (%(default)s)",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of the recording; run again to resume",
    )


def _run_record(options: argparse.Namespace) -> int:
    sources = _read_sources(options)
    try:
        grids = tuple(Grid.parse(text) for text in options.segment.split(","))
    except ValueError as error:
        raise CommandError(f"--segment: {error}") from error
    with computing():
        from earvoice.evaluation.recorder import record_inputs  # noqa: PLC0415 - imports torch

        recording = Recording(options.output)
        progress = RunProgress("record", len(sources), len(recording.inputs()))
        record_inputs(options.model, sources, grids, recording, progress)
    return ExitCode.DONE


def _add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording_arguments(parser)
    parser.add_argument(
        "--policy",
        metavar="SETTING",
        action="append",
        default=[],
        help="POLICY:PARAMETER=VALUE,...@segment=MS,wait=MS,beam=N,attention=VIEW,drafts=false,"
        "guards=false,commit=UNIT,lag=MS,confidence=SHARE; values separated by / each "
        "make a setting; repeatable",
    )
    parser.add_argument("--settings", metavar="FILE", type=Path, help="more settings, one per line")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        required=True,
        help="where each setting gets a folder; run again to resume",
    )


def _run_replay(options: argparse.Namespace) -> int:
    lines = read_lines(options.settings) if options.settings else ()
    settings = read_settings([*options.policy, *(line for line in lines if line.strip())])
    with computing():
        from earvoice.evaluation.replay.run import Replay  # noqa: PLC0415 - imports torch

        replay = Replay(options.recording, options.model, options.to, options.limit)
        replay.run(settings, options.output)
        tally = replay.tally
    sys.stderr.write(
        f"{len(settings)} settings; hypotheses: {tally['asked']} asked for, "
        f"{tally['searched']} searched; beams: {tally['beams asked']} asked for, "
        f"{tally['beams searched']} searched\n"
    )
    return ExitCode.DONE


def read_settings(texts: Sequence[str]) -> list[ReplaySetting]:
    settings: list[ReplaySetting] = []
    for text in texts:
        try:
            settings += parse_settings(text)
        except ValueError as error:
            raise CommandError(f"setting {text!r}: {error}") from error
    if not settings:
        raise CommandError("no setting was given: --policy or --settings")
    return list(dict.fromkeys(settings))


def _add_calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    _add_test_set_arguments(parser, with_model=True, required=False)
    parser.add_argument(
        "--confidence",
        metavar="RUN",
        type=Path,
        help="fit word confidence instead, on an output folder of earvoice evaluate with captions "
        "in the speaker's language and transcripts as references",
    )
    parser.add_argument(
        "--segment", metavar="MS", type=int, help="segment of the streams (the model's own)"
    )
    parser.add_argument(
        "--lag-ms",
        type=number_from(0, 60_000, float),
        help="highest mean LAAL allowed for the default alpha and frames "
        f"({_CALIBRATED_LAG_MS:.0f})",
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="where the recording and the replays go"
    )


def _calibrate_confidence(options: argparse.Namespace) -> int:
    with computing():
        from earvoice.evaluation import confidence  # noqa: PLC0415 - the model's config needs torch
        from earvoice.models import checkpoint  # noqa: PLC0415

        config = checkpoint.load_config(options.model)
        model_hash = checkpoint.directory_hash(options.model)
        run = confidence.read_run(options.confidence, config, model_hash)
        chosen = confidence.calibrate(run)
        if not options.dry_run:
            checkpoint.write_calibration(options.model, chosen)
    sys.stdout.write(confidence.reliability_table(run, chosen))
    for name, value in asdict(chosen).items():
        sys.stdout.write(f"{name} = {value} (was {getattr(config.confidence, name)})\n")
    return ExitCode.DONE


def _run_calibrate(options: argparse.Namespace) -> int:
    if options.confidence is not None:
        for name in ("source", "target", "to", "segment", "lag_ms", "output"):
            if getattr(options, name) is not None:
                flag = name.replace("_", "-")
                raise CommandError(f"--{flag} is for the policy's parameters, not for --confidence")
        return _calibrate_confidence(options)
    for name in ("source", "target", "output"):
        if getattr(options, name) is None:
            raise CommandError(f"--{name} is missing: the policy's parameters are tried on a set")
    sources = _read_sources(options)
    if options.segment is not None:
        check_segment_ms(options.segment)
    with computing():
        from earvoice.evaluation.calibration import calibrate  # noqa: PLC0415 - imports torch
        from earvoice.evaluation.recorder import record_inputs  # noqa: PLC0415
        from earvoice.evaluation.replay.run import Replay  # noqa: PLC0415
        from earvoice.models.checkpoint import load_config, write_calibration  # noqa: PLC0415

        config = load_config(options.model)
        before = config.policy_defaults
        segment_ms = before.segment_ms if options.segment is None else options.segment
        recording = Recording(options.output / "recording")
        progress = RunProgress("record", len(sources), len(recording.inputs()))
        record_inputs(options.model, sources, [Grid(segment_ms)], recording, progress)
        replay = Replay(recording.folder, options.model, options.to)
        chosen = calibrate(
            replay,
            options.output / "replays",
            segment_ms,
            _CALIBRATED_LAG_MS if options.lag_ms is None else options.lag_ms,
            before,
            are_captions=primary_language(replay.language)
            == primary_language(config.source_language),
        )
        if not options.dry_run:
            write_calibration(options.model, chosen)
    for name, value in asdict(chosen).items():
        sys.stdout.write(f"{name} = {value} (was {getattr(before, name)})\n")
    return ExitCode.DONE


def _add_precision_arguments(parser: argparse.ArgumentParser) -> None:
    _add_test_set_arguments(parser, with_model=True)
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=_PRECISIONS,
        default=_PRECISIONS,
        help="formats to try (all)",
    )
    parser.add_argument("--limit", metavar="N", type=int, help="use only the first N recordings")


def _run_precision(options: argparse.Namespace) -> int:
    if options.limit is not None and options.limit < 1:
        raise CommandError(f"--limit {options.limit} is not allowed; allowed: 1 or more")
    sources = _read_sources(options)[: options.limit]
    with computing():
        from earvoice.evaluation.precision import compare_precisions  # noqa: PLC0415 - torch
        from earvoice.models.checkpoint import add_precision_trials, load_config  # noqa: PLC0415

        languages = [language.code for language in load_config(options.model).target_languages]
        language = options.to or languages[0]
        if language not in languages:
            raise CommandError(f"--to {language} is not written; allowed: {', '.join(languages)}")
        results = compare_precisions(options.model, language, sources, options.precisions)
        if not options.dry_run:
            add_precision_trials(options.model, tuple(trial for _, trial in results[1:]))
    sys.stdout.write(_precision_table(results))
    return ExitCode.DONE


def _precision_table(results: Sequence[tuple[float, PrecisionTrial]]) -> str:
    lines = [f"{'':8}{'inputs':>8}{'equal %':>10}{'BLEU':>9}{'ΔBLEU':>9}{'at least':>10}  passed"]
    for bleu, trial in results:
        lines.append(
            f"{trial.precision:8}{trial.input_count:8}{100 * trial.equal_share:10.2f}"
            f"{bleu:9.2f}{trial.bleu_difference:9.2f}{trial.least_bleu_difference:10.2f}"
            f"  {'yes' if trial.passed else 'no'}"
        )
    return "\n".join(lines) + "\n"


RECORD = Command(
    _add_record_arguments, _run_record, "record the encoder's output for a test set, for replay"
)
REPLAY = Command(
    _add_replay_arguments,
    _run_replay,
    "run any policies on a recording, with the decoder alone",
)
CALIBRATE = Command(
    _add_calibrate_arguments,
    _run_calibrate,
    "choose a model's policy parameters on a development set",
)
PRECISION = Command(
    _add_precision_arguments, _run_precision, "find out whether a model may compute in bf16 or int8"
)
