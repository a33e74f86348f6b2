"""The command-line arguments of a translation."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any, get_args

from earvoice.cli.command import CommandError, number_from
from earvoice.client.options import (
    CatchUp,
    CommitUnit,
    Endpointing,
    HistorySelection,
    TranslationOptions,
)
from earvoice.client.preset import Preset, find_preset
from earvoice.policies import POLICIES, DecisionPolicy, parse_policy
from earvoice.policies.registry import FILE_FORM, with_parameters
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.parameter import parameters_of
from earvoice.runtime.stream_ranges import (
    BEAM_SIZE,
    HISTORY_WORDS,
    INITIAL_WAIT_MS,
    SEGMENT_MS,
    TARGET_LAG_MS,
)

_POLICY_PARAMETERS = (
    "alpha",
    "lambda_states",
    "frames",
    "attention_layer",
    "k",
    "n",
    "detection",
)


def add_language_arguments(
    parser: argparse.ArgumentParser, target: str | None = None, *, several: bool = False
) -> None:
    """Declare ``--to``, which may be repeated if ``several``, ``--from`` and ``--model``."""
    unset = "the model's first" if target is None else target
    if several:
        parser.add_argument(
            "--to",
            metavar="TAG[,TAG...]",
            action="append",
            help=f"languages wanted, BCP-47; may be repeated ({unset})",
        )
    else:
        parser.add_argument(
            "--to", metavar="TAG", default=target, help=f"language wanted, BCP-47 ({unset})"
        )
    parser.add_argument(
        "--from", dest="source", metavar="TAG", default="", help="language spoken (the model's)"
    )
    parser.add_argument("--model", metavar="NAME", default="", help="(the server's first)")


def read_targets(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the languages wanted; none for the model's first."""
    targets = tuple(tag.strip() for text in options.to or () for tag in text.split(","))
    if not all(targets) or len(set(targets)) < len(targets):
        given = " --to ".join(options.to)
        raise CommandError(f"--to {given} is not allowed; allowed: tags, each once, such as de,es")
    return targets


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the policy's arguments; those not given take the model's calibrated values."""
    group = parser.add_argument_group("decision policy (default: the model's own)")
    names = ", ".join(name.replace("_", "-") for name in POLICIES)
    group.add_argument(
        "--policy",
        metavar="NAME[:PARAMETER=VALUE,...]",
        help=f"one of {names}, or of an installed package, or {FILE_FORM} of one's own; such as "
        "edatt:alpha=0.2,attention_heads=1+3",
    )
    group.add_argument(
        "--preset",
        metavar="NAME[:PARAMETER=VALUE,...]",
        help="a paper's setting instead: `earvoice presets` lists them",
    )
    for name in _POLICY_PARAMETERS:
        _add_parameter(group, name)


def _add_parameter(group: argparse._ArgumentGroup, name: str) -> None:
    meanings: dict[str, list[str]] = {}
    for policy in POLICIES.values():
        declared = parameters_of(policy).get(name)
        if declared is not None:
            parameter = declared
            bounds = f", {declared.range}" if declared.range and not declared.choices else ""
            meaning = f"{declared.help}{bounds}".replace("`", "")
            meanings.setdefault(meaning, []).append(policy.name.replace("_", "-"))
    group.add_argument(
        f"--{name.replace('_', '-')}",
        type=parameter.kind,
        choices=parameter.choices or None,
        help="; ".join(f"{', '.join(names)}: {meaning}" for meaning, names in meanings.items()),
    )


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("stream")
    _add_number(group, "--segment-ms", SEGMENT_MS, "length of a segment, {}")
    _add_number(
        group, "--initial-wait-ms", INITIAL_WAIT_MS, "extra length of the first segment, {}"
    )
    _add_number(
        group,
        "--target-lag-ms",
        TARGET_LAG_MS,
        "mean word lag to hold by adjusting the policy's parameter, {} (none)",
    )
    _add_number(group, "--beam-size", BEAM_SIZE, "hypotheses followed, {} (the policy's)")
    group.add_argument("--commit-unit", choices=get_args(CommitUnit), help="(word)")
    group.add_argument(
        "--catch-up",
        choices=get_args(CatchUp),
        help="if the machine falls behind (every-segment at full speed, else merge)",
    )
    group.add_argument(
        "--no-endpointing",
        action="store_true",
        help="end utterances only with the audio, or at the model's longest input",
    )
    group.add_argument(
        "--no-guards", action="store_true", help="no limits on commits, to reproduce released code"
    )
    group.add_argument(
        "--min-confidence",
        metavar="SHARE",
        type=number_from(0, 1, float),
        help="mean confidence, 0 to 1, that an utterance's words must reach before they are "
        "released; 0 releases all (the model's)",
    )
    group.add_argument(
        "--history",
        metavar="WORDS|sentence",
        type=_read_history,
        help="in an utterance that never ends, keep the last 1 to 200 words, or what follows the "
        "last sentence end (all)",
    )
    group.add_argument(
        "--reconnect-limit-s",
        type=number_from(0, 86_400, float),
        help="how long to try to reconnect to a lost server; 0 never tries (60)",
    )


def _add_number(
    group: argparse._ArgumentGroup, flag: str, allowed: tuple[int, int], meaning: str
) -> None:
    """Declare a whole number; its range takes the place of ``{}`` in the help."""
    group.add_argument(
        flag, type=number_from(*allowed, int), help=meaning.format("{} to {}".format(*allowed))
    )


def read_policy(options: argparse.Namespace) -> DecisionPolicy | None:
    """Return the requested policy; None for the model's own."""
    values = {name: getattr(options, name) for name in _POLICY_PARAMETERS}
    given = {name: value for name, value in values.items() if value is not None}
    preset = read_preset(options)
    if options.policy is None and preset is None:
        if given:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise CommandError(
                f"{flags} needs --policy or --preset: the model's own may not have it"
            )
        return None
    try:
        policy = preset.policy if preset else parse_policy(options.policy)
        return with_parameters(policy, given)
    except ValueError as error:
        raise CommandError(str(error)) from error


def read_preset(options: argparse.Namespace) -> Preset | None:
    if options.preset is None:
        return None
    if options.policy is not None:
        raise CommandError("--preset and --policy both choose a policy: give one")
    try:
        return find_preset(options.preset)
    except ValueError as error:
        raise CommandError(f"{error}; `earvoice presets` lists them") from error


def read_translation_options(
    options: argparse.Namespace, audio: AudioFormat, *targets: str, paced: bool
) -> TranslationOptions:
    """Return the options of one translation.

    Args:
        options: parsed arguments of all three groups above, ``interim``, ``transcript`` and
            ``stage_timings``.
    """
    plain = TranslationOptions(
        target_languages=targets,
        audio=audio,
        source_language=options.source,
        model=options.model,
        catch_up=options.catch_up or ("merge" if paced else "every-segment"),
        interim=options.interim,
        transcript=options.transcript,
        stage_timings=options.stage_timings,
        paced=paced,
    )
    preset = read_preset(options)
    start = preset.apply(plain) if preset else plain
    return replace(start, policy=read_policy(options), **_stream_choices(options))


def _stream_choices(options: argparse.Namespace) -> dict[str, Any]:
    """Return the stream arguments that were given; they override a preset."""
    choices = {
        "segment_ms": options.segment_ms,
        "initial_wait_ms": options.initial_wait_ms,
        "beam_size": options.beam_size,
        "target_lag_ms": options.target_lag_ms,
        "commit_unit": options.commit_unit,
        "endpointing": Endpointing(disabled=True) if options.no_endpointing else None,
        "disable_guards": options.no_guards or None,
        "min_confidence": options.min_confidence,
        "history_selection": options.history,
        "reconnect_limit_s": options.reconnect_limit_s,
    }
    return {name: value for name, value in choices.items() if value is not None}


def _read_history(text: str) -> HistorySelection:
    if text == "sentence":
        return HistorySelection()
    try:
        return HistorySelection(number_from(*HISTORY_WORDS, int)(text))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, sentence") from error
