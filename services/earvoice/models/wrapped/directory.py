"""A checkpoint directory in the form of `transformers`."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors

from earvoice.models.errors import CheckpointError, ModelError
from earvoice.runtime.files import digest_of

CONFIG_FILE = "config.json"
READ_SUFFIXES = (".json", ".model", ".safetensors", ".txt")
"""Files that say what a model computes; pickled weights are never read."""


def is_wrapped(path: Path) -> bool:
    """Whether a directory holds a checkpoint of another family: its config names a model type."""
    try:
        return "model_type" in read_config(path)
    except CheckpointError:
        # Reading it as our own checkpoint will then report what is wrong with it.
        return False


def require_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise ModelError("this checkpoint is computed by transformers: pip install 'earvoice[hf]'")


def read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads((path / CONFIG_FILE).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        message = f"checkpoint {path.name}: {CONFIG_FILE} is not readable ({error})"
        raise CheckpointError(message) from error
    if not isinstance(config, dict):
        raise CheckpointError(f"checkpoint {path.name}: {CONFIG_FILE} is not a JSON object")
    return config


def weight_size(path: Path) -> tuple[int, int]:
    """Size of the weights in bytes, and their number, without reading them."""
    files = list(path.glob("*.safetensors"))
    if not files:
        message = f"checkpoint {path.name} has no .safetensors file; pickled weights are not read"
        raise CheckpointError(message)
    count = 0
    for file in files:
        try:
            with safetensors.safe_open(file, framework="pt") as tensors:
                names = tensors.keys()
                count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except (safetensors.SafetensorError, OSError) as error:
            message = f"checkpoint {path.name}: {file.name} is not usable ({error})"
            raise CheckpointError(message) from error
    return sum(file.stat().st_size for file in files), count


def digest(path: Path) -> str:
    """Digest of every file that is read."""
    return digest_of(item for item in path.iterdir() if item.suffix in READ_SUFFIXES)
