"""``earvoice presets``: the papers' settings, by name."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from earvoice.cli.command import Command
from earvoice.cli.exit_code import ExitCode
from earvoice.client.policy_text import format_policy
from earvoice.client.preset_table import PAPERS, PRESETS

if TYPE_CHECKING:
    import argparse

    from earvoice.client.preset import Preset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")


def _run(options: argparse.Namespace) -> int:
    print(_as_json() if options.format == "json" else _as_text())
    return ExitCode.DONE


def _as_json() -> str:
    presets = [
        {**asdict(preset), "paper": preset.paper, "policy": format_policy(preset.policy)}
        for preset in PRESETS
    ]
    return json.dumps(presets, ensure_ascii=False, indent=2)


def _as_text() -> str:
    width = max(len(preset.name) for preset in PRESETS)
    lines: list[str] = []
    for paper, presets in groupby(PRESETS, lambda preset: preset.paper):
        lines += ["", PAPERS[paper]]
        lines += [f"  {preset.name:{width}}  {_describe(preset)}" for preset in presets]
    return "\n".join(lines[1:])


def _describe(preset: Preset) -> str:
    stream = [
        f"segments of {preset.segment_ms} ms" if preset.segment_ms else "",
        f"first longer by {preset.initial_wait_ms} ms" if preset.initial_wait_ms else "",
        f"beam {preset.beam_size}" if preset.beam_size else "",
    ]
    settings = [format_policy(preset.policy), *filter(None, stream)]
    return f"{preset.summary} ({'; '.join(settings)})"


COMMAND = Command(_add_arguments, _run)
