"""From any checkpoint that is read to one of our own format."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from earvoice.models.checkpoint import read_parts, save_checkpoint

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def convert(
    source: Path,
    target: Path,
    *,
    languages: tuple[str, str],
    name: str | None = None,
    precision: str = "fp32",
) -> None:
    """Write a checkpoint directory.

    Args:
        source: checkpoint directory or `.pt` file.
        target: directory to be made.
        languages: BCP-47 tags of source and target, for a file that does not say them.
        name: to serve it by; None keeps its own.
        precision: of the matrices; vectors stay float32. fp32, bf16 or fp16.

    Raises:
        CheckpointError: the source is not usable, or a part has no place in our format.
        ModelConfigError: its configuration is impossible.
        VocabularyError: a vocabulary is not usable.
    """
    parts = read_parts(source, *languages)
    save_checkpoint(
        target,
        dataclasses.replace(parts.config, name=name or parts.config.name),
        parts.tensors,
        normalisation=parts.normalisation,
        source_model=parts.source_vocabulary.model,
        target_model=parts.target_vocabulary.model,
        storage_dtype=_DTYPES[precision],
    )
