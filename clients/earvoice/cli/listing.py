"""``earvoice models``: what a server can be asked for; ``presets``: the papers' settings."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import groupby

from earvoice.cli.command import Command, ExitCode, Interruption, run_async
from earvoice.cli.server_choice import add_server_arguments, choose_server, open_client
from earvoice.client.model_description import ModelCatalog, ModelDescription
from earvoice.client.preset import PAPERS, PRESETS, Preset
from earvoice.policies import format_policy


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    _add_format(parser)
    add_server_arguments(parser)


def _list_models(options: argparse.Namespace) -> int:
    async def ask(_: Interruption) -> int:
        async with choose_server(options) as address, open_client(address, options) as client:
            catalog = await client.list_models()
        print(
            json.dumps(asdict(catalog), ensure_ascii=False, indent=2)
            if options.format == "json"
            else _catalog_text(catalog)
        )
        return ExitCode.DONE

    return run_async(ask)


def _catalog_text(catalog: ModelCatalog) -> str:
    models = [_model_text(model) for model in catalog.models]
    policies = f"policies: {', '.join(catalog.policies)}"
    limit = f"target languages a stream: {catalog.max_target_languages}"
    return "\n".join([*models, policies, limit])


def _model_text(model: ModelDescription) -> str:
    heads = ", ".join(map(str, model.default_attention_heads)) or "all"
    own = "".join(f"  into {tag}: {text}\n" for tag, text in sorted(model.default_policies.items()))
    languages = f"{model.source_language} -> {', '.join(model.target_languages)}"
    return (
        f"{model.name} {model.version}: {languages}, {model.parameter_count:,} parameters, "
        f"{model.precision}\n"
        f"  default: {model.default_policy}, alpha {model.default_alpha:g}, "
        f"lambda {model.default_lambda_states}, frames {model.default_frames}, attention layer "
        f"{model.default_attention_layer} of {model.decoder_layer_count}, heads {heads}, "
        f"segments of {model.default_segment_ms} ms, understood from a confidence of "
        f"{model.default_min_confidence:g} on\n"
        f"{own}"
        f"  hash: {model.hash}"
    )


def _list_presets(options: argparse.Namespace) -> int:
    print(_presets_json() if options.format == "json" else _presets_text())
    return ExitCode.DONE


def _presets_json() -> str:
    presets = [
        {**asdict(preset), "paper": preset.paper, "policy": format_policy(preset.policy)}
        for preset in PRESETS
    ]
    return json.dumps(presets, ensure_ascii=False, indent=2)


def _presets_text() -> str:
    width = max(len(preset.name) for preset in PRESETS)
    lines: list[str] = []
    for paper, presets in groupby(PRESETS, lambda preset: preset.paper):
        lines += ["", PAPERS[paper]]
        lines += [f"  {preset.name:{width}}  {_preset_text(preset)}" for preset in presets]
    return "\n".join(lines[1:])


def _preset_text(preset: Preset) -> str:
    stream = [
        f"segments of {preset.segment_ms} ms" if preset.segment_ms else "",
        f"first longer by {preset.initial_wait_ms} ms" if preset.initial_wait_ms else "",
        f"beam {preset.beam_size}" if preset.beam_size else "",
    ]
    settings = [format_policy(preset.policy), *filter(None, stream)]
    return f"{preset.summary} ({'; '.join(settings)})"


MODELS = Command(
    _add_model_arguments, _list_models, "list the models and policies that a server offers"
)
PRESETS_COMMAND = Command(_add_format, _list_presets, "list the papers' settings by name")
