"""``earvoice verify model``, ``policy`` and ``run``: does our code do what the papers' does?"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import aclosing
from pathlib import Path

from earvoice.cli.command import Command, CommandError, ExitCode, Interruption, run_async
from earvoice.cli.local_services import add_start_argument
from earvoice.evaluation.commands import computing, find_checkpoint
from earvoice.evaluation.verification.decisions import verify_policy
from earvoice.evaluation.verification.runs import read_run, summary_of, verify_run
from earvoice.evaluation.verification.tensors import read_arrays, read_reference, summary, table

DIFFERENT = 1
"""Exit status when something differs."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(metavar="WHAT", required=True)
    _add_model_arguments(subparsers.add_parser("model", help="a checkpoint, tensor by tensor"))
    policy = subparsers.add_parser("policy", help="recorded decisions, through our policy objects")
    policy.add_argument(
        "cases", metavar="CASES.json", type=Path, help="recorded inputs and decisions"
    )
    policy.add_argument(
        "attention", metavar="ATTENTION.npz", type=Path, help="attention of each case"
    )
    policy.set_defaults(verify=_verify_policy)
    run = subparsers.add_parser("run", help="a recorded run, through the three services")
    run.add_argument("run", metavar="RUN.json.gz", type=Path, help="recorded run of an agent")
    run.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        required=True,
        help="the checkpoint that the agent ran with",
    )
    run.add_argument(
        "--wav", metavar="DIR", type=Path, required=True, help="the recordings that it heard"
    )
    run.add_argument("--log-dir", type=Path, help="keep the logs of the services")
    add_start_argument(run)
    run.set_defaults(verify=_verify_run)


def _add_model_arguments(model: argparse.ArgumentParser) -> None:
    model.add_argument(
        "checkpoint", metavar="CHECKPOINT_DIR", type=Path, help="checkpoint, or its .pt file"
    )
    model.add_argument(
        "forward", metavar="FORWARD.npz", type=Path, help="tensors computed with the checkpoint"
    )
    model.add_argument(
        "--features",
        metavar="FEATURES.npz",
        type=Path,
        help="features that FORWARD.npz was computed from (feats.npz beside it); they are checked "
        "too if wav_fbank.npz is beside them",
    )
    model.add_argument(
        "--strategy",
        metavar="NAME",
        help="check only this CTC compression, such as avg (all in the file)",
    )
    model.set_defaults(verify=_verify_model)


def _run(options: argparse.Namespace) -> int:
    status: int = options.verify(options)
    return status


def _verify_model(options: argparse.Namespace) -> int:
    _check_files(options.forward)
    checkpoint = find_checkpoint(options.checkpoint)
    with computing():
        from earvoice.evaluation.verification.model import (  # noqa: PLC0415 - imports torch
            feature_files,
            verify_features,
            verify_model,
        )
        from earvoice.models.checkpoint import read_parts  # noqa: PLC0415
        from earvoice.models.loaders.fairseq import shifts_by_batch  # noqa: PLC0415

        features_path, sound = feature_files(options.forward, options.features)
        features = read_arrays(features_path)
        differences = list(verify_features(sound, checkpoint, features)) if sound else []
        differences += verify_model(
            read_parts(checkpoint),
            read_reference(options.forward, options.strategy),
            features,
            shifts_by_batch=checkpoint.suffix == ".pt" and shifts_by_batch(checkpoint),
        )
    for line in (*table(differences), summary(differences)):
        _tell(line)
    return ExitCode.DONE if all(item.is_within for item in differences) else DIFFERENT


def _verify_policy(options: argparse.Namespace) -> int:
    _check_files(options.cases, options.attention)
    differences, told = verify_policy(options.cases, options.attention)
    for line in (*differences, told):
        _tell(line)
    return DIFFERENT if differences else ExitCode.DONE


def _verify_run(options: argparse.Namespace) -> int:
    _check_files(options.run)
    run = read_run(options.run)
    checkpoint = find_checkpoint(options.model).resolve()

    async def play(_: Interruption) -> int:
        counts: Counter[str] = Counter()
        verified = verify_run(
            run, checkpoint, options.wav, options.start_timeout_s, options.log_dir
        )
        async with aclosing(verified) as played:
            async for differences, compared in played:
                for line in differences:
                    _tell(line)
                counts += compared
        _tell(summary_of(counts))
        return DIFFERENT if counts["places"] else ExitCode.DONE

    return run_async(play)


def _check_files(*paths: Path) -> None:
    for path in paths:
        if not path.is_file():
            raise CommandError(f"{path}: no such file", ExitCode.INPUT)


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result


COMMAND = Command(
    _add_arguments, _run, "compare models, policies and whole runs with the papers' code"
)
