"""``earvoice translate FILE…|-``."""

from __future__ import annotations

import shutil
import sys
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.cli.audio_input import (
    STANDARD_INPUT,
    StandardInput,
    add_audio_arguments,
    open_input,
)
from earvoice.cli.command import Command, CommandError
from earvoice.cli.connection import open_client
from earvoice.cli.event_loop import run_async
from earvoice.cli.exit_code import ExitCode
from earvoice.cli.json_lines import JsonLineWriter
from earvoice.cli.progress import Progress
from earvoice.cli.server_choice import add_server_arguments, choose_server
from earvoice.cli.text_writer import TextWriter
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_policy,
    read_translation_options,
)
from earvoice.client.event import Reconnected, Summary

if TYPE_CHECKING:
    import argparse

    from earvoice.cli.audio_input import AudioInput
    from earvoice.cli.event_loop import Interruption
    from earvoice.client.options import TranslationOptions
    from earvoice.client.translation_client import TranslationClient


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_audio_arguments(parser)
    add_language_arguments(parser)
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="(%(default)s)")
    parser.add_argument("--interim", action="store_true", help="also the tail that may change")
    parser.add_argument("--transcript", action="store_true", help="also what was understood")
    parser.add_argument(
        "--stage-timings", action="store_true", help="where each word's time went (jsonl)"
    )
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    add_server_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    _check(options)

    async def translate(interruption: Interruption) -> int:
        return await _translate_all(options, interruption)

    return run_async(translate)


def _check(options: argparse.Namespace) -> None:
    """Find what is wrong before any service is started."""
    read_policy(options)
    if options.sources.count(STANDARD_INPUT) > 1:
        raise CommandError("- can be read only once")
    if options.stage_timings and options.format != "jsonl":
        raise CommandError("--stage-timings needs --format jsonl")
    if options.interim and options.format == "text" and not sys.stdout.isatty():
        raise CommandError("--interim needs a terminal, or --format jsonl")
    for source in options.sources:
        with open_input(source, options):
            pass


async def _translate_all(options: argparse.Namespace, interruption: Interruption) -> int:
    async with choose_server(options) as address, open_client(address, options) as client:
        target = options.to or await find_target(client, options.model)
        for source in options.sources:
            with open_input(source, options) as audio:
                if isinstance(audio, StandardInput):
                    interruption.call_instead(audio.stop)
                await _translate(client, audio, target, options)
    return ExitCode.DONE


async def find_target(client: TranslationClient, model: str) -> str:
    """Return the first target language of a model; of the server's first for an empty name.

    Raises:
        CommandError: the server has no such model.
        TranslationError: it cannot be asked.
    """
    models = (await client.list_models()).models
    for description in models:
        if description.name == (model or models[0].name) and description.target_languages:
            return description.target_languages[0]
    names = ", ".join(description.name for description in models) or "none"
    raise CommandError(f"model = {model!r} is not served; served: {names}", ExitCode.GIVE_UP)


async def _translate(
    client: TranslationClient, audio: AudioInput, target: str, options: argparse.Namespace
) -> None:
    choices = read_translation_options(options, audio.audio, target, paced=audio.paced)
    # On one terminal the words themselves show the progress.
    visible = sys.stderr.isatty() and not sys.stdout.isatty()
    name = Path(audio.name).name
    progress = Progress(sys.stderr, name, audio.duration_ms, enabled=visible)
    if options.format == "text" and len(options.sources) > 1:
        print(f"==> {audio.name} <==", flush=True)
    with closing(_open_writer(options.format, audio.name, choices)) as writer, closing(progress):
        async with aclosing(client.translate(audio.chunks(), choices)) as events:
            async for event in events:
                writer.write(event)
                progress.write(event)
                if isinstance(event, Reconnected):
                    _tell_of_loss(name, event)
    if isinstance(event, Summary):
        _tell_of_cuts(name, event)


def _tell_of_loss(name: str, event: Reconnected) -> None:
    seconds = event.gap_ms / 1000
    sys.stderr.write(f"earvoice: {name}: {event.reason}; went on elsewhere after {seconds:.1f} s\n")


def _tell_of_cuts(name: str, summary: Summary) -> None:
    """Own up to text that was held back; without evidence there was nothing to say."""
    cuts = {guard: count for guard, count in summary.guards_hit.items() if guard != "evidence"}
    if cuts:
        told = ", ".join(f"{guard}: {count}" for guard, count in sorted(cuts.items()))
        sys.stderr.write(f"earvoice: {name}: guards cut the translation ({told})\n")


def _open_writer(
    output_format: str, name: str, choices: TranslationOptions
) -> TextWriter | JsonLineWriter:
    if output_format == "jsonl":
        return JsonLineWriter(sys.stdout, name, choices)
    return TextWriter(sys.stdout, choices, shutil.get_terminal_size().columns)


COMMAND = Command(_add_arguments, _run)
