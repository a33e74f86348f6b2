"""``earvoice model info`` and ``convert``: describe a checkpoint, convert any format to ours."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from earvoice.cli.command import Command, CommandError, ExitCode
from earvoice.client.model_description import read_model
from earvoice.evaluation.commands import computing, find_checkpoint
from earvoice.models.assembly import (
    FLOAT32_BYTES,
    CheckpointParts,
    build_network,
    check_vocabularies,
    loading_bytes,
)
from earvoice.models.checkpoint import WEIGHTS_FILE, read_parts, save_checkpoint
from earvoice.models.translation import parameter_count, tied_parameter_count
from earvoice.models.wrapped.directory import (
    is_wrapped,
    read_config,
    require_transformers,
    weight_size,
)
from earvoice.policy.wire.config import LANGUAGE_TAG
from earvoice.runtime.machine import available_memory_bytes


def summarize(path: Path, source_language: str, target_language: str) -> dict[str, Any]:
    """Read a checkpoint, check that it is complete, and describe it: plain values by name."""
    if is_wrapped(path):
        return _summary_of_family(path, source_language, target_language)
    parts = read_parts(path, source_language, target_language)
    check_vocabularies(parts.config, parts.source_vocabulary, parts.target_vocabulary)
    build_network(parts.config, parts.tensors)
    config = parts.config
    parameters, tied = parameter_count(config), tied_parameter_count(config)
    return {
        "name": config.name,
        "version": config.version,
        "languages": [
            f"{config.source_language} -> {language.code} {language.policy}".rstrip()
            for language in config.target_languages
        ],
        "parameters": parameters,
        "encoder": config.encoder.description,
        "decoder": _decoder_text(parts),
        "vocabularies": [config.source_pieces, config.target_pieces],
        "stored as": _stored_dtype(path, parts),
        "size on disk, bytes": _disk_bytes(path),
        "weights in fp32, bytes": FLOAT32_BYTES * parameters,
        "weights in bf16, bytes": FLOAT32_BYTES // 2 * parameters,
        "memory to load it, bytes": loading_bytes(_weight_bytes(parts), parameters, tied),
        "memory available here, bytes": available_memory_bytes(),
        "hash": parts.hash,
        **{f"default {key}": value for key, value in config.policy_defaults.to_dict().items()},
    }


def _summary_of_family(path: Path, source_language: str, target_language: str) -> dict[str, Any]:
    require_transformers()
    from earvoice.models.wrapped.loading import load_wrapped  # noqa: PLC0415 - an extra

    described = load_wrapped(
        path,
        dtype=torch.float32,
        device=torch.device("cpu"),
        source_language=source_language,
        target_language=target_language,
    ).description
    stored_bytes, parameters = weight_size(path)
    return {
        **dataclasses.asdict(read_model(described)),
        "family": read_config(path)["model_type"],
        "size on disk, bytes": _disk_bytes(path),
        "weights in fp32, bytes": FLOAT32_BYTES * parameters,
        "weights in bf16, bytes": FLOAT32_BYTES // 2 * parameters,
        "memory to load it, bytes": loading_bytes(stored_bytes, parameters),
        "memory available here, bytes": available_memory_bytes(),
    }


def _decoder_text(parts: CheckpointParts) -> str:
    decoder = parts.config.decoder
    tied = ", tied embeddings" if decoder.tied_embeddings else ""
    return f"{decoder.layers} layers, {decoder.heads} heads, {decoder.ffn_width} inner{tied}"


def _stored_dtype(path: Path, parts: CheckpointParts) -> str:
    """The number format of most numbers; what is read from 8 bits is made of floats at once."""
    file = path / WEIGHTS_FILE
    tensors = load_file(file) if file.is_file() else parts.tensors
    counts: Counter[torch.dtype] = Counter()
    for tensor in tensors.values():
        counts[tensor.dtype] += tensor.numel()
    return str(counts.most_common(1)[0][0]).removeprefix("torch.")


def _weight_bytes(parts: CheckpointParts) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in parts.tensors.values())


def _disk_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [item for item in path.iterdir() if item.is_file()]
    return sum(item.stat().st_size for item in files)


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not known"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "not given"
    return str(value)


_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def _read_tag(text: str) -> str:
    if LANGUAGE_TAG.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed; allowed: a BCP-47 tag, such as de or pt-BR"
        )
    return text


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(metavar="WHAT", required=True)
    info = subparsers.add_parser("info", help="show what a checkpoint is and what it needs")
    info.add_argument("path", metavar="PATH", type=Path, help="directory or .pt file")
    info.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")
    info.set_defaults(do=_info)
    convert = subparsers.add_parser("convert", help="write a checkpoint in EarVoice's own format")
    convert.add_argument("source", metavar="SRC", type=Path, help="directory or .pt file")
    convert.add_argument("target", metavar="DST", type=Path, help="directory to create")
    convert.add_argument("--name", help="name to serve it by (its own)")
    convert.add_argument(
        "--precision",
        choices=_DTYPES,
        default="fp32",
        help="precision of the matrices (%(default)s)",
    )
    for subparser in (info, convert):
        subparser.add_argument(
            "--from",
            dest="source_language",
            type=_read_tag,
            default="und",
            help="source language that a .pt file lacks, BCP-47",
        )
        subparser.add_argument(
            "--to",
            dest="target_language",
            type=_read_tag,
            default="und",
            help="target language that a .pt file lacks, BCP-47",
        )
    convert.set_defaults(do=_convert)


def _run(options: argparse.Namespace) -> int:
    with computing():
        options.do(options)
    return ExitCode.DONE


def _info(options: argparse.Namespace) -> None:
    summary = summarize(
        find_checkpoint(options.path), options.source_language, options.target_language
    )
    if options.format == "json":
        _tell(json.dumps(summary, ensure_ascii=False, indent=2))
    else:
        width = max(map(len, summary))
        for name, value in summary.items():
            _tell(f"{name:<{width}}  {_shown(value)}")


def _convert(options: argparse.Namespace) -> None:
    source, target = find_checkpoint(options.source), options.target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandError(f"{target}: is there already; allowed: a new or empty directory")
    parts = read_parts(source, options.source_language, options.target_language)
    save_checkpoint(
        target,
        dataclasses.replace(parts.config, name=options.name or parts.config.name),
        parts.tensors,
        normalisation=parts.normalisation,
        source_model=parts.source_vocabulary.model,
        target_model=parts.target_vocabulary.model,
        lexicon=parts.lexicon,
        storage_dtype=_DTYPES[options.precision],
    )
    _tell(f"{source} -> {target}")


def _tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the result


COMMAND = Command(
    _add_arguments, _run, "show what a checkpoint holds, or convert one from the papers' code"
)
