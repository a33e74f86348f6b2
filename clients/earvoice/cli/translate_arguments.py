"""The choices of a translation on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from earvoice.cli.command import CommandError
from earvoice.client.options import CatchUp, CommitUnit, Endpointing, TranslationOptions
from earvoice.client.policy import POLICIES, DecisionPolicy, WordDetection, choose_policy

if TYPE_CHECKING:
    import argparse

    from earvoice.client.audio_format import AudioFormat

_POLICY_PARAMETERS = ("alpha", "lambda_states", "attention_layer", "k", "n", "detection")


def add_language_arguments(parser: argparse.ArgumentParser, target: str | None = None) -> None:
    """Declare ``--to``, ``--from`` and ``--model``."""
    unset = "the model's first" if target is None else target
    parser.add_argument(
        "--to", metavar="TAG", default=target, help=f"language wanted, BCP-47 ({unset})"
    )
    parser.add_argument(
        "--from", dest="source", metavar="TAG", default="", help="language spoken (the model's)"
    )
    parser.add_argument("--model", metavar="NAME", default="", help="(the server's first)")


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare when to speak; what is not given takes the model's calibrated value."""
    group = parser.add_argument_group("decision policy (default: the model's own)")
    names = ", ".join(name.replace("_", "-") for name in POLICIES)
    group.add_argument("--policy", metavar="NAME", help=f"one of {names}")
    group.add_argument("--alpha", type=float, help="edatt: threshold, 0 to 1; larger speaks sooner")
    group.add_argument("--lambda-states", type=int, help="edatt: last states added up, 1 to 64")
    group.add_argument("--attention-layer", type=int, help="edatt: decoder layer read, from 1")
    group.add_argument("--k", type=int, help="wait-k: words to wait, 1 to 64")
    group.add_argument("--detection", choices=get_args(WordDetection), help="wait-k: word counting")
    group.add_argument(
        "--n", type=int, help="local-agreement: hypotheses that agree; hold-n: tokens held back"
    )


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare segments, utterances and what is committed."""
    group = parser.add_argument_group("stream")
    group.add_argument("--segment-ms", type=int, help="length of a segment, 200 to 10000")
    group.add_argument("--initial-wait-ms", type=int, help="longer first segment, 0 to 10000")
    group.add_argument("--commit-unit", choices=get_args(CommitUnit), help="(word)")
    group.add_argument(
        "--catch-up",
        choices=get_args(CatchUp),
        help="when the machine is late (every-segment at full speed, else merge)",
    )
    group.add_argument(
        "--no-endpointing", action="store_true", help="one utterance, however long the pauses"
    )


def read_policy(options: argparse.Namespace) -> DecisionPolicy | None:
    """Return the policy that was asked for; None for the model's own.

    Raises:
        CommandError: no such policy, or a parameter that it does not have.
    """
    values = {name: getattr(options, name) for name in _POLICY_PARAMETERS}
    given = {name: value for name, value in values.items() if value is not None}
    if options.policy is None:
        if given:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise CommandError(f"{flags} needs --policy: the model's own may not have it")
        return None
    try:
        return choose_policy(options.policy, **given)
    except ValueError as error:
        raise CommandError(str(error)) from error


def read_translation_options(
    options: argparse.Namespace, audio: AudioFormat, target: str, *, paced: bool
) -> TranslationOptions:
    """Return the options of one translation.

    Args:
        options: parsed arguments of all three groups above, ``interim``, ``transcript`` and
            ``stage_timings``.
        audio: format of what will be sent.
        target: BCP-47 tag of the language wanted.
        paced: whether the audio is sent as it comes into being.

    Raises:
        CommandError: the policy does not exist or does not have a parameter.
    """
    return TranslationOptions(
        target_languages=(target,),
        audio=audio,
        source_language=options.source,
        model=options.model,
        policy=read_policy(options),
        segment_ms=options.segment_ms,
        initial_wait_ms=options.initial_wait_ms,
        catch_up=options.catch_up or ("merge" if paced else "every-segment"),
        commit_unit=options.commit_unit,
        endpointing=Endpointing(disabled=options.no_endpointing),
        interim=options.interim,
        transcript=options.transcript,
        stage_timings=options.stage_timings,
        paced=paced,
    )
