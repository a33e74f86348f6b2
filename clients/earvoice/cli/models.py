"""``earvoice models``: what a server can be asked for."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from earvoice.cli.command import Command
from earvoice.cli.connection import open_client
from earvoice.cli.event_loop import run_async
from earvoice.cli.exit_code import ExitCode
from earvoice.cli.server_choice import add_server_arguments, choose_server

if TYPE_CHECKING:
    import argparse

    from earvoice.cli.event_loop import Interruption
    from earvoice.client.model_description import ModelCatalog, ModelDescription


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")
    add_server_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    async def ask(_: Interruption) -> int:
        async with choose_server(options) as address, open_client(address, options) as client:
            catalog = await client.list_models()
        print(_as_json(catalog) if options.format == "json" else _as_text(catalog))
        return ExitCode.DONE

    return run_async(ask)


def _as_json(catalog: ModelCatalog) -> str:
    return json.dumps(asdict(catalog), ensure_ascii=False, indent=2)


def _as_text(catalog: ModelCatalog) -> str:
    models = [_describe(model) for model in catalog.models]
    policies = f"policies: {', '.join(catalog.policies)}"
    limit = f"target languages a stream: {catalog.max_target_languages}"
    return "\n".join([*models, policies, limit])


def _describe(model: ModelDescription) -> str:
    heads = ", ".join(map(str, model.default_attention_heads)) or "all"
    languages = f"{model.source_language} -> {', '.join(model.target_languages)}"
    return (
        f"{model.name} {model.version}: {languages}, {model.parameter_count:,} parameters, "
        f"{model.precision}\n"
        f"  default: {model.default_policy}, alpha {model.default_alpha:g}, "
        f"lambda {model.default_lambda_states}, frames {model.default_frames}, attention layer "
        f"{model.default_attention_layer} of {model.decoder_layer_count}, heads {heads}, "
        f"segments of {model.default_segment_ms} ms\n"
        f"  hash: {model.hash}"
    )


COMMAND = Command(_add_arguments, _run)
