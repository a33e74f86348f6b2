"""``earvoice evaluate``: a test set through the services, and its scores."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.command import Command, CommandError
from earvoice.cli.connection import open_client
from earvoice.cli.event_loop import run_async
from earvoice.cli.exit_code import ExitCode, exit_code_of
from earvoice.cli.server_choice import add_server_arguments, choose_server
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_translation_options,
)
from earvoice.client.audio_format import AudioFormat
from earvoice.evaluation.long_form import ResegmenterError
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.recording import RecordingError
from earvoice.evaluation.run.evaluation import EvaluationResult, evaluate
from earvoice.evaluation.run.source_set import SourceSet, add_source_arguments, read_source_set
from earvoice.runtime.settings import SettingsError, load_settings

if TYPE_CHECKING:
    import argparse

    from earvoice.cli.event_loop import Interruption
    from earvoice.client.options import TranslationOptions
    from earvoice.client.translation_client import TranslationClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where logs and scores go; run again to go on after an interruption",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep what encoder and decoder found in DIR/recording, for `earvoice replay`",
    )
    add_session_arguments(parser)


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare everything that a session can be asked for, and the server."""
    add_language_arguments(parser)
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    add_server_arguments(parser)
    # The further choices of ``read_translation_options`` change no score.
    parser.set_defaults(interim=False, transcript=False, stage_timings=False)


def _run(options: argparse.Namespace) -> int:
    try:
        return _evaluate(options)
    except LogError as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    except ResegmenterError as error:
        raise CommandError(str(error)) from error


def _evaluate(options: argparse.Namespace) -> int:
    sources = read_source_set(options)
    check_session_options(options)
    if options.record:
        _check_recordable(options)

    async def run(_: Interruption) -> int:
        async with choose_server(options) as address, open_client(address, options) as client:
            choices = await choose_session(client, options)
            result = await evaluate(client, sources, choices, options.output)
        if result.report is not None:
            print(result.report.as_text())  # noqa: T201 - the result
        return tell_failures(result, sources)

    status = run_async(run)
    if options.record:
        _record(options.output, sources)
    return status


def _check_recordable(options: argparse.Namespace) -> None:
    """Refuse what cannot be replayed.

    Raises:
        CommandError: an option lets the encoder hear what depends on the policy.
    """
    if not options.no_endpointing:
        raise CommandError("--record needs --no-endpointing: audio must not be cut by a policy")
    for flag, given in (
        ("--live", options.live),
        ("--history", options.history),
        ("--target-lag-ms", options.target_lag_ms),
        ("--unit", options.unit),
    ):
        if given:
            raise CommandError(f"--record cannot be used with {flag}")


def _record(folder: Path, sources: SourceSet) -> None:
    """Keep the revisions and hypotheses of a finished run.

    Raises:
        CommandError: the model that was served is not here.
    """
    # Only recording needs torch.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.encoder.settings import EncoderSettings  # noqa: PLC0415
    from earvoice.evaluation.live_recording import record_run  # noqa: PLC0415
    from earvoice.evaluation.recorder import RecordError  # noqa: PLC0415

    try:
        model_path = load_settings(EncoderSettings).model_path
        recorded = record_run(folder, sources.recordings, model_path)
    except (RecordError, RecordingError, SettingsError) as error:
        raise CommandError(str(error), ExitCode.INPUT) from error
    count = recorded.compared_count
    message = f"recorded in {recorded.recording.folder}: {recorded.setting.name}; replayed"
    print(  # noqa: T201 - for people
        f"{message}, {count - len(recorded.different)} of {count} are what the services said",
        file=sys.stderr,
    )


def check_session_options(options: argparse.Namespace) -> None:
    """Find what is wrong with the options of a session before any service is started.

    Raises:
        CommandError: no such policy or parameter, or choices that contradict each other.
    """
    if options.catch_up == "merge" and not options.live:
        raise CommandError(
            "--catch-up merge needs --live: a recording at full speed would be one segment"
        )
    read_translation_options(options, AudioFormat(), "de", paced=options.live)


async def choose_session(
    client: TranslationClient, options: argparse.Namespace
) -> TranslationOptions:
    """Return the options of every session of a run.

    Raises:
        CommandError: the server has no such model or language.
        TranslationError: it cannot be asked.
    """
    models = {model.name: model for model in (await client.list_models()).models}
    model = models.get(options.model or next(iter(models), ""))
    if model is None:
        raise CommandError(
            f"model = {options.model!r} is not served; served: {', '.join(models) or 'none'}",
            ExitCode.GIVE_UP,
        )
    for tag, allowed in (
        (options.to, model.target_languages),
        (options.source, (model.source_language,)),
    ):
        if tag and tag not in allowed:
            raise CommandError(
                f"language = {tag!r} is not served by {model.name}; served: {', '.join(allowed)}"
            )
    target = options.to or model.target_languages[0]
    return read_translation_options(options, AudioFormat(), target, paced=options.live)


def tell_failures(result: EvaluationResult, sources: SourceSet) -> int:
    """Tell how many recordings failed, and return the exit status."""
    if not result.failures:
        return ExitCode.DONE
    scores = "the scores are without them" if result.report is not None else "there are no scores"
    message = f"{len(result.failures)} of {len(sources.recordings)} recordings failed: {scores}"
    print(f"earvoice: {message}; the same command tries them again", file=sys.stderr)  # noqa: T201 - for people
    return exit_code_of(result.failures[-1])


COMMAND = Command(_add_arguments, _run)
