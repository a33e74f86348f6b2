"""``earvoice model info`` and ``earvoice model convert``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from earvoice.cli.command import Command, CommandError
from earvoice.cli.exit_code import ExitCode

STORAGE_TYPES = ("fp32", "bf16", "fp16")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(metavar="WHAT", required=True)
    info = subparsers.add_parser("info", help="what a checkpoint is, and what it needs")
    info.add_argument("path", metavar="PATH", type=Path, help="directory or .pt file")
    info.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")
    info.set_defaults(do=_info)
    convert = subparsers.add_parser("convert", help="write a checkpoint in EarVoice's own format")
    convert.add_argument("source", metavar="SRC", type=Path, help="directory or .pt file")
    convert.add_argument("target", metavar="DST", type=Path, help="directory to be made")
    convert.add_argument("--name", help="to serve it by (its own)")
    convert.add_argument(
        "--precision", choices=STORAGE_TYPES, default="fp32", help="of the matrices (%(default)s)"
    )
    for subparser in (info, convert):
        subparser.add_argument(
            "--from", dest="source_language", default="und", help="BCP-47 tag a .pt file lacks"
        )
        subparser.add_argument(
            "--to", dest="target_language", default="und", help="the same, of the translation"
        )
    convert.set_defaults(do=_convert)


def _run(options: argparse.Namespace) -> int:
    from earvoice.models.errors import ModelError  # noqa: PLC0415 - is not installed everywhere

    try:
        options.do(options)
    except ModelError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    return ExitCode.DONE


def _info(options: argparse.Namespace) -> None:
    from earvoice.checkpoint.summary import summarize  # noqa: PLC0415 - imports torch

    summary = summarize(
        _checkpoint_path(options.path), options.source_language, options.target_language
    )
    if options.format == "json":
        _tell(json.dumps(summary.values, ensure_ascii=False, indent=2))
    else:
        _tell(summary.text())


def _convert(options: argparse.Namespace) -> None:
    from earvoice.checkpoint.conversion import convert  # noqa: PLC0415 - imports torch

    source, target = _checkpoint_path(options.source), options.target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandError(f"{target}: is there already; allowed: a new or empty directory")
    convert(
        source,
        target,
        languages=(options.source_language, options.target_language),
        name=options.name,
        precision=options.precision,
    )
    _tell(f"{source} -> {target}")


def _checkpoint_path(path: Path) -> Path:
    """The only ``.pt`` file of a folder without a checkpoint of our own, or else the path itself.

    Raises:
        CommandError: there is nothing, or there are several ``.pt`` files.
    """
    if not path.exists():
        raise CommandError(f"{path}: no such file or directory", ExitCode.INPUT)
    files = sorted(path.glob("*.pt")) if path.is_dir() else []
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CommandError(f"{path}: has several checkpoints ({names}): name one")
    return files[0] if files else path


def _tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the result


COMMAND = Command(_add_arguments, _run)
