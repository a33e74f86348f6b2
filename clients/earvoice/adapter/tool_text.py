"""The tools' input and output: our command-line arguments in, words as text and tokens out."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Never

from earvoice.cli.command import CommandError
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_translation_options,
)
from earvoice.client.event import CommittedWord
from earvoice.client.options import TranslationOptions
from earvoice.runtime.audio_format import AudioFormat

DEFAULT_SERVER = "127.0.0.1:50051"
AUDIO = AudioFormat("float32")
"""The audio that the tools hand over, unless their recording has another rate."""


def choose_session(text: str) -> tuple[str, TranslationOptions]:
    """Return the server and options given by arguments of ``earvoice evaluate``.

    Args:
        text: such as ``--server localhost:50051 --to de --policy edatt:alpha=0.2``.
    """
    parser = _Parser(prog="earvoice", add_help=False, allow_abbrev=False)
    parser.add_argument("--server", default=DEFAULT_SERVER)
    add_language_arguments(parser, target="de")
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    parser.set_defaults(interim=False, transcript=False, stage_timings=False)
    chosen = parser.parse_args(shlex.split(text))
    if chosen.catch_up == "merge":
        raise ValueError("--catch-up merge is not allowed: the tools wait for every segment")
    try:
        options = read_translation_options(chosen, AUDIO, chosen.to, paced=False)
    except CommandError as error:
        raise ValueError(str(error)) from error
    return chosen.server, options


class _Parser(argparse.ArgumentParser):
    """Raises an error where a command line would exit."""

    def error(self, message: str) -> Never:
        raise ValueError(f"in the options for earvoice, {message}")


def write_tokens(before: str, words: Sequence[CommittedWord]) -> tuple[list[str], list[str], str]:
    """Write a token for each word; a later piece of a word rewrites its token.

    Args:
        before: the last token written; empty before the first.

    Returns:
        The tokens removed from the end, the tokens written after that, and the last token.
    """
    new = [before] if before else []
    for word in words:
        if word.starts_word or not new:
            new.append(word.text)
        else:
            new[-1] += word.text
    last = new[-1] if new else ""
    if before and new[0] == before:
        return [], new[1:], last
    return [before] if before else [], new, last
