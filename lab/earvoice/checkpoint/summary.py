"""What a checkpoint is, for a person who wants to serve it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from earvoice.models.assembly import CheckpointParts, build_network, check_vocabularies
from earvoice.models.checkpoint import read_parts
from earvoice.models.footprint import FLOAT32_BYTES, loading_bytes
from earvoice.models.translation import parameter_count
from earvoice.models.wrapped.directory import (
    is_wrapped,
    read_config,
    require_transformers,
    weight_size,
)
from earvoice.runtime.memory import available_memory_bytes


@dataclasses.dataclass(frozen=True)
class ModelSummary:
    """What is told about a checkpoint.

    Attributes:
        values: plain values by name, ready for JSON.
    """

    values: dict[str, Any]

    def text(self) -> str:
        """A line for each value."""
        width = max(map(len, self.values))
        return "\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in self.values.items())


def summarize(path: Path, source_language: str, target_language: str) -> ModelSummary:
    """Read a checkpoint, prove that it is whole, and say what it is.

    Args:
        path: checkpoint directory or `.pt` file.
        source_language: BCP-47 tag, for a file that does not say it.
        target_language: the same of the translation.

    Raises:
        CheckpointError: a file is missing, damaged, or contradicts another.
        ModelConfigError: the configuration is impossible.
        VocabularyError: a vocabulary is not usable.
    """
    if is_wrapped(path):
        return _summary_of_family(path, source_language, target_language)
    parts = read_parts(path, source_language, target_language)
    check_vocabularies(parts.config, parts.source_vocabulary, parts.target_vocabulary)
    build_network(parts.config, parts.tensors)
    config = parts.config
    parameters = parameter_count(config)
    return ModelSummary(
        {
            "name": config.name,
            "version": config.version,
            "languages": [
                f"{config.source_language} -> {language.code}"
                for language in config.target_languages
            ],
            "parameters": parameters,
            "encoder": _encoder_text(parts),
            "decoder": _decoder_text(parts),
            "vocabularies": [config.source_pieces, config.target_pieces],
            "stored as": _stored_dtype(parts),
            "size on disk, bytes": _disk_bytes(path),
            "weights in fp32, bytes": FLOAT32_BYTES * parameters,
            "weights in bf16, bytes": FLOAT32_BYTES // 2 * parameters,
            "memory to load it, bytes": loading_bytes(_weight_bytes(parts), parameters),
            "memory available here, bytes": available_memory_bytes(),
            "hash": parts.hash,
            **{f"default {key}": value for key, value in config.policy_defaults.to_dict().items()},
        }
    )


def _summary_of_family(path: Path, source_language: str, target_language: str) -> ModelSummary:
    require_transformers()
    from earvoice.models.wrapped.loading import load_wrapped  # noqa: PLC0415 - an extra

    facts = load_wrapped(
        path,
        dtype=torch.float32,
        device=torch.device("cpu"),
        source_language=source_language,
        target_language=target_language,
    ).facts
    stored_bytes, parameters = weight_size(path)
    return ModelSummary(
        {
            **dataclasses.asdict(facts),
            "family": read_config(path)["model_type"],
            "size on disk, bytes": _disk_bytes(path),
            "weights in fp32, bytes": FLOAT32_BYTES * parameters,
            "weights in bf16, bytes": FLOAT32_BYTES // 2 * parameters,
            "memory to load it, bytes": loading_bytes(stored_bytes, parameters),
            "memory available here, bytes": available_memory_bytes(),
        }
    )


def _encoder_text(parts: CheckpointParts) -> str:
    encoder = parts.config.encoder
    return (
        f"{encoder.architecture}, {encoder.layers} layers, {encoder.d_model} wide, "
        f"{encoder.heads} heads, CTC after layer {encoder.ctc_layer}, {encoder.compression}, "
        f"{encoder.frame_shift_ms} ms a frame, {encoder.positions} positions"
    )


def _decoder_text(parts: CheckpointParts) -> str:
    decoder = parts.config.decoder
    tied = ", tied embeddings" if decoder.tied_embeddings else ""
    return f"{decoder.layers} layers, {decoder.heads} heads, {decoder.ffn_width} inner{tied}"


def _stored_dtype(parts: CheckpointParts) -> str:
    """The number format of most of the weights."""
    counts: Counter[torch.dtype] = Counter()
    for tensor in parts.tensors.values():
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
