"""``earvoice translate FILE…|-``."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from pathlib import Path

from earvoice.cli.audio_input import (
    STANDARD_INPUT,
    AudioInput,
    add_audio_arguments,
    open_input,
)
from earvoice.cli.command import (
    Command,
    CommandError,
    ExitCode,
    Interruption,
    number_from,
    run_async,
)
from earvoice.cli.output import (
    FORMATS,
    EventWriter,
    JsonLineWriter,
    JsonWriter,
    LabelledTextWriter,
    Progress,
    SubtitleWriter,
    TextWriter,
)
from earvoice.cli.server_choice import add_server_arguments, choose_server, open_client
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_policy,
    read_targets,
    read_translation_options,
)
from earvoice.client.audio import tee
from earvoice.client.captions import CaptionMarks
from earvoice.client.errors import AudioSourceError, ServerBusyError
from earvoice.client.event import (
    Committed,
    Reconnected,
    SegmentDone,
    Started,
    Summary,
    TranslationEvent,
)
from earvoice.client.model_description import ModelDescription
from earvoice.client.options import TranslationOptions
from earvoice.client.translation_client import TranslationClient

_CAPTION_FORMATS = ("srt", "vtt", "json")
SILENCE_MS = 120_000
"""After this much audio without a word the command says so, while the audio goes on."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_audio_arguments(parser)
    add_language_arguments(parser, several=True)
    parser.add_argument(
        "--format",
        type=lambda name: "text" if name == "txt" else name,
        choices=FORMATS,
        default="text",
        help="text (or txt) as it comes, a JSON object a line as it comes (jsonl) or one at the "
        "end (json), subtitles (srt, vtt) (%(default)s)",
    )
    parser.add_argument(
        "--mark-below",
        metavar="SHARE",
        type=number_from(0, 1, float),
        default=0.0,
        help="captions (srt, vtt, json): words with less confidence, 0 to 1, are followed by (?)",
    )
    parser.add_argument(
        "--not-understood",
        metavar="TEXT",
        default="",
        help="captions: text shown where speech was not understood, such as '[not understood]' "
        "(nothing)",
    )
    parser.add_argument("--interim", action="store_true", help="show the tail that may change")
    parser.add_argument(
        "--transcript", action="store_true", help="show the source transcript (text, jsonl)"
    )
    parser.add_argument(
        "--stage-timings", action="store_true", help="where each word's time went (jsonl, json)"
    )
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    add_server_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    return run_async(lambda interruption: _translate_all(options, interruption))


def _check(options: argparse.Namespace) -> None:
    read_policy(options)
    if options.sources.count(STANDARD_INPUT) > 1:
        raise CommandError("- can be read only once")
    _check_captions(options)
    if options.stage_timings and options.format not in ("jsonl", "json"):
        raise CommandError("--stage-timings needs --format jsonl or json")
    if options.transcript and options.format not in ("text", "jsonl"):
        raise CommandError("--transcript needs --format text or jsonl")
    is_terminal = options.format == "text" and sys.stdout.isatty()
    if options.interim and not is_terminal and options.format != "jsonl":
        raise CommandError("--interim needs a terminal, or --format jsonl")
    targets = read_targets(options)
    if options.interim and is_terminal and len(targets) > 1:
        raise CommandError("--interim shows one language on a terminal: give one --to")
    for source in options.sources:
        with open_input(source, options):
            pass


def _check_captions(options: argparse.Namespace) -> None:
    if options.format in ("srt", "vtt"):
        if len(options.sources) > 1:
            raise CommandError(f"--format {options.format} is of one recording: give one")
        if len(read_targets(options)) > 1:
            raise CommandError(f"--format {options.format} is of one language: give one --to")
    if (options.mark_below or options.not_understood) and options.format not in _CAPTION_FORMATS:
        formats = ", ".join(_CAPTION_FORMATS)
        raise CommandError(f"--mark-below and --not-understood need --format {formats}")


async def _translate_all(options: argparse.Namespace, interruption: Interruption) -> int:
    async with choose_server(options) as address, open_client(address, options) as client:
        targets = read_targets(options) or (await find_target(client, options.model),)
        sessions = await _share(client, targets)
        for source in options.sources:
            # On one terminal the words themselves show the progress.
            visible = sys.stderr.isatty() and not sys.stdout.isatty()
            width = shutil.get_terminal_size().columns if visible else 0
            progress = Progress(sys.stderr, Path(source).name, width)
            with closing(progress), open_input(source, options, progress.say) as audio:
                try:
                    await _translate(client, audio, sessions, progress, options, interruption)
                finally:
                    interruption.call_instead(None)
    return ExitCode.DONE


async def _share(client: TranslationClient, targets: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the targets of each session: all in one, if the server takes that many."""
    if len(targets) == 1:
        return [targets]
    limit = max(1, (await client.list_models()).max_target_languages)
    return [targets[start : start + limit] for start in range(0, len(targets), limit)]


async def find_target(client: TranslationClient, model: str) -> str:
    """Return a model's first target language."""
    return (await find_model(client, model)).target_languages[0]


async def find_model(client: TranslationClient, name: str) -> ModelDescription:
    """Return a model's description; an empty name means the server's first model."""
    models = (await client.list_models()).models
    for model in models:
        if model.name == (name or models[0].name) and model.target_languages:
            return model
    served = ", ".join(model.name for model in models) or "none"
    raise CommandError(f"model = {name!r} is not served; served: {served}", ExitCode.GIVE_UP)


async def _translate(
    client: TranslationClient,
    audio: AudioInput,
    sessions: list[tuple[str, ...]],
    progress: Progress,
    options: argparse.Namespace,
    interruption: Interruption,
) -> None:
    progress.duration_ms = audio.duration_ms
    if options.format == "text" and len(options.sources) > 1:
        print(f"==> {audio.name} <==", flush=True)
    several = sum(map(len, sessions)) > 1
    failures: list[AudioSourceError] = []
    # No words of one language are written while the server may still refuse another.
    admitted = asyncio.Barrier(len(sessions) + 1)
    read = _until_broken(audio, failures, admitted, interruption)
    async with tee(read, len(sessions)) as streams:
        try:
            async with asyncio.TaskGroup() as group:
                for targets, stream in zip(sessions, streams, strict=True):
                    choices = read_translation_options(
                        options, audio.audio, *targets, paced=audio.paced
                    )
                    marks = CaptionMarks(options.mark_below, options.not_understood)
                    writer = _open_writer(
                        options.format, audio.name, choices, marks, several=several
                    )
                    events = client.translate(stream, choices)
                    group.create_task(_show(events, writer, progress, admitted))
        except BaseExceptionGroup as failed:
            # The first failure ended the other sessions.
            error = failed.exceptions[0]
            if isinstance(error, ServerBusyError) and len(sessions) > 1:
                progress.say(
                    f"--to needs {len(sessions)} sessions at once, one for each language: give "
                    "fewer to a server that never has room for so many"
                )
            raise error from None
    if failures:
        raise failures[0]


async def _until_broken(
    audio: AudioInput,
    failures: list[AudioSourceError],
    admitted: asyncio.Barrier,
    interruption: Interruption,
) -> AsyncGenerator[bytes, None]:
    """Yield what can be read; keep a fault for later, so that the audio before is translated.

    Once some has come, Ctrl-C ends it, if it does not end by itself, and not the command.
    """
    await admitted.wait()
    has_begun = False
    try:
        async for chunk in audio.chunks():
            if not has_begun:
                has_begun = True
                interruption.call_instead(audio.stop)
            yield chunk
    except AudioSourceError as error:
        if not has_begun:
            raise
        failures.append(error)


async def _show(
    events: AsyncGenerator[TranslationEvent, None],
    writer: EventWriter,
    progress: Progress,
    admitted: asyncio.Barrier,
) -> None:
    spoke = told = started = False
    with closing(writer):
        async with aclosing(events):
            async for event in events:
                writer.write(event)
                progress.write(event)
                match event:
                    case Started() if not started:
                        started = True
                        await admitted.wait()
                    case Committed():
                        spoke = spoke or bool(event.words)
                    case SegmentDone() if not (spoke or told) and event.end_ms >= SILENCE_MS:
                        told = True
                        progress.say(
                            f"no speech was found in the first {SILENCE_MS // 60_000} minutes: is "
                            "this the right input, at the right rate?"
                        )
                    case Reconnected():
                        seconds = event.gap_ms / 1000
                        progress.say(f"{event.reason}; went on elsewhere after {seconds:.1f} s")
                    case Summary():
                        _tell_of_cuts(event, progress)
                        if not (spoke or told or event.utterances_not_understood):
                            progress.say("no speech was found")


def _tell_of_cuts(summary: Summary, progress: Progress) -> None:
    """Report held-back text, but not cuts by the guard `evidence`: there was nothing to say."""
    cuts = {guard: count for guard, count in summary.guards_hit.items() if guard != "evidence"}
    if summary.utterances_not_understood:
        progress.say(
            f"{summary.utterances_not_understood} of {summary.utterance_count} utterances were not "
            "understood"
        )
    if cuts:
        told = ", ".join(f"{guard}: {count}" for guard, count in sorted(cuts.items()))
        progress.say(f"guards cut the translation ({told})")


def _open_writer(
    output_format: str,
    name: str,
    choices: TranslationOptions,
    marks: CaptionMarks,
    *,
    several: bool,
) -> EventWriter:
    match output_format:
        case "jsonl":
            return JsonLineWriter(sys.stdout, name, choices)
        case "json":
            return JsonWriter(sys.stdout, name, marks)
        case "srt" | "vtt":
            return SubtitleWriter(sys.stdout, output_format, marks)
    if several:
        return LabelledTextWriter(sys.stdout, choices)
    return TextWriter(sys.stdout, choices, shutil.get_terminal_size().columns)


COMMAND = Command(_add_arguments, _run, "translate recordings, or raw audio from standard input")
