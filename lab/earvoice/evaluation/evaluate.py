"""``earvoice evaluate``: run a test set through the services and score it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from earvoice.cli.audio_input import open_recording
from earvoice.cli.command import (
    Command,
    CommandError,
    ExitCode,
    Interruption,
    exit_code_of,
    gather,
    require_extra,
    run_async,
)
from earvoice.cli.local_services import read_settings
from earvoice.cli.server_choice import add_server_arguments, choose_server, open_client
from earvoice.cli.translate import find_model
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_translation_options,
)
from earvoice.client.audio import send_fast
from earvoice.client.errors import AudioSourceError, TranslationError
from earvoice.client.event import Started
from earvoice.client.model_description import ModelDescription
from earvoice.client.options import TranslationOptions
from earvoice.client.text import write_words
from earvoice.client.translation_client import TranslationClient
from earvoice.encoder.settings import EncoderSettings
from earvoice.evaluation.collector import Collector
from earvoice.evaluation.instance import Unit, default_unit
from earvoice.evaluation.recording import RECORDING_FOLDER, check_recordable
from earvoice.evaluation.run_folder import LOG_NAME, EvaluationFolder, RunProgress
from earvoice.evaluation.score import SCORES_NAME, Report, score_log, score_table
from earvoice.evaluation.source_set import (
    SourceRecording,
    SourceSet,
    add_source_arguments,
    read_source_set,
)
from earvoice.policies.registry import is_file_form, resolved_file
from earvoice.policy.wire.config import check_language
from earvoice.runtime.audio_format import WORDS, AudioFormat
from earvoice.runtime.errors import LanguageNotSupportedError

# Options that differ between recordings, or do not change results.
_UNCOMPARED_OPTIONS = ("audio", "paced", "interim", "stage_timings", "traceparent")


async def _translate(
    client: TranslationClient,
    recording: SourceRecording,
    options: TranslationOptions,
    unit: Unit,
    folder: EvaluationFolder,
) -> dict[str, Any]:
    collector = Collector(unit, options.paced)
    with _open(recording, options) as (chunks, audio):
        session = client.translate(chunks, replace(options, audio=audio))
        async with aclosing(session) as events:
            async for event in events:
                collector.add(event)
                if collector.started is event:
                    folder.check_session(describe_session(collector.started))
    return collector.finish(recording, options.target_languages[0])


@contextmanager
def _open(
    recording: SourceRecording, options: TranslationOptions
) -> Iterator[tuple[AsyncIterator[bytes], AudioFormat]]:
    if recording.text is not None:
        yield send_fast([write_words(f"{recording.text}\n")]), WORDS
        return
    with open_recording(recording.path, "realtime" if options.paced else "fast") as audio:
        yield audio.chunks(), audio.audio


def describe_session(started: Started) -> dict[str, Any]:
    """Return what the server reported that must be the same for every recording of a run."""
    return {
        **_describe_model(started.model),
        "server_version": started.server_version,
        "options": describe_options(started.options),
    }


def _describe_model(model: ModelDescription) -> dict[str, Any]:
    return {
        "model": model.name,
        "model_version": model.version,
        "model_hash": model.hash,
        "precision": model.precision,
    }


def describe_options(options: TranslationOptions) -> dict[str, Any]:
    values = {
        name: value for name, value in asdict(options).items() if name not in _UNCOMPARED_OPTIONS
    }
    if options.policy is not None:
        values["policy"] = {"name": options.policy.name, **options.policy.to_dict()}
    return values


async def translate_set(
    client: TranslationClient, sources: SourceSet, options: TranslationOptions, path: Path
) -> Sequence[TranslationError]:
    """Translate the recordings that are not finished in a folder.

    Returns:
        The errors of the recordings that failed; running again retries those.

    Raises:
        TranslationError: a session was refused before it began, so all others would be too.
    """
    unit = sources.scoring.unit or default_unit(options.target_languages[0])
    folder = EvaluationFolder(path, {**sources.settings, "options": describe_options(options)})
    finished = folder.finished()
    if finished:
        # Also where nothing is missing: these would be another model's scores.
        folder.check_session_so_far(_describe_model(await find_model(client, options.model)))
    missing = [one for one in sources.recordings if one.index not in finished]
    progress = RunProgress(path.name, len(sources.recordings), len(finished))
    waiting = iter(missing)
    failures: list[TranslationError] = []

    async def translate_waiting() -> None:
        for recording in waiting:
            try:
                folder.append(await _translate(client, recording, options, unit, folder))
            except TranslationError as error:
                # A session that is refused before it begins would be refused for every recording.
                if not (error.session_started or isinstance(error, AudioSourceError)):
                    raise
                failures.append(error)
                progress.fail(f"{recording.path}: {error.message}")
            else:
                progress.count(recording.duration_ms)

    with closing(progress):
        await gather(translate_waiting() for _ in range(min(sources.stream_count, len(missing))))
    folder.complete(unit)
    return failures


def score_run(
    folder: Path, sources: SourceSet, failures: Sequence[TranslationError]
) -> Report | None:
    """Score what a folder holds; None if it cannot be scored without what failed.

    Not for an event loop: OmniSTEval forks, and its processes would inherit how the loop receives
    signals, so that ending them would end us, or neither.
    """
    if len(failures) == len(sources.recordings) or (failures and not sources.partly_scorable):
        return None
    report, _, _ = score_log(folder / LOG_NAME, sources.scoring)
    (folder / SCORES_NAME).write_text(score_table(report), encoding="utf8")
    return report


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where logs and scores go; run again to resume after an interruption",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the output of encoder and decoder in DIR/recording, for `earvoice replay`",
    )
    add_session_arguments(parser)
    parser.add_argument(
        "--transcript",
        action="store_true",
        help="log the source transcript of each utterance, too",
    )


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    add_language_arguments(parser)
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    add_server_arguments(parser)
    # The other options that ``read_translation_options`` reads do not change scores.
    parser.set_defaults(interim=False, transcript=False, stage_timings=False)


def _run(options: argparse.Namespace) -> int:
    sources = read_source_set(options)
    check_session_options(options)
    if options.record:
        _check_recordable(options)

    async def run(_: Interruption) -> Sequence[TranslationError]:
        async with choose_server(options) as address, open_client(address, options) as client:
            choices = await choose_session(client, options)
            return await translate_set(client, sources, choices, options.output)

    failures = run_async(run)
    report = score_run(options.output, sources, failures)
    if report is not None:
        print(report.as_text())  # noqa: T201 - the result
    status = tell_failures(report, failures, sources)
    if options.record and len(failures) < len(sources.recordings):
        _record(options.output, sources, options.policy or "")
    return status


def _check_recordable(options: argparse.Namespace) -> None:
    if not options.no_endpointing:
        raise CommandError("--record needs --no-endpointing: audio must not be cut by a policy")
    for flag, given in (
        ("--text", options.text),
        ("--live", options.live),
        ("--history", options.history),
        ("--target-lag-ms", options.target_lag_ms),
        ("--unit", options.unit),
    ):
        if given:
            raise CommandError(f"--record cannot be used with {flag}")
    require_extra("encoder")
    check_recordable(read_settings(EncoderSettings))


def _record(folder: Path, sources: SourceSet, policy: str) -> None:
    # Only recording needs torch.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from earvoice.evaluation.replay.run import record_run  # noqa: PLC0415

    model_path = read_settings(EncoderSettings).model_path
    policy_file = resolved_file(policy) if is_file_form(policy) else ""
    setting, count, different = record_run(folder, sources.recordings, model_path, policy_file)
    print(  # noqa: T201 - for people
        f"recorded in {folder / RECORDING_FOLDER}: {setting.name}; replayed, "
        f"{count - len(different)} of {count} are what the services said",
        file=sys.stderr,
    )


def check_session_options(options: argparse.Namespace) -> None:
    if options.catch_up == "merge" and not options.live:
        raise CommandError(
            "--catch-up merge needs --live: a recording at full speed would be one segment"
        )
    read_translation_options(options, AudioFormat(), "und", paced=options.live)


def served_language(flag: str, tag: str | None, served: Sequence[str]) -> str:
    """Return the model's tag for a language, its first for None: ``de-AT`` is served by ``de``."""
    try:
        return check_language(flag, tag or served[0], served)
    except LanguageNotSupportedError as error:
        raise CommandError(error.message) from error


async def choose_session(
    client: TranslationClient, options: argparse.Namespace
) -> TranslationOptions:
    model = await find_model(client, options.model)
    if options.source:
        served_language("--from", options.source, [model.source_language])
    target = served_language("--to", options.to, model.target_languages)
    return read_translation_options(options, AudioFormat(), target, paced=options.live)


def tell_failures(
    report: Report | None, failures: Sequence[TranslationError], sources: SourceSet
) -> int:
    if not failures:
        return ExitCode.DONE
    scores = "the scores are without them" if report is not None else "there are no scores"
    message = f"{len(failures)} of {len(sources.recordings)} recordings failed: {scores}"
    print(f"earvoice: {message}; the same command tries them again", file=sys.stderr)  # noqa: T201 - for people
    return exit_code_of(failures[-1])


COMMAND = Command(_add_arguments, _run, "translate a test set through the services, and score it")
