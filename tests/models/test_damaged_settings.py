"""Settings beside the papers' checkpoints, and options in them, that no network follows from."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.models.checkpoint import load_checkpoint, read_parts
from earvoice.models.config import ModelConfig
from earvoice.models.errors import CheckpointError
from tests.models.papers_checkpoint import (
    CONFIGURATION,
    papers_names,
    papers_options,
    write_papers_checkpoint,
)
from tests.tiny_model import random_network

pytestmark = pytest.mark.torch

TRANSFORMS = "{'*': [global_cmvn]}"
SETTINGS = "config_simul.yaml"


@pytest.fixture
def checkpoint(
    tmp_path: Path, released_config: ModelConfig, source_model: bytes, target_model: bytes
) -> Path:
    return write_papers_checkpoint(tmp_path, released_config, source_model, target_model)


@pytest.mark.parametrize(
    ("transforms", "mean"),
    [
        ("", 0.0),
        ("{'*': null}", 0.0),
        ("{'_eval': [global_cmvn], '*': [utterance_cmvn]}", 9.0),
        ("{'_eval': null, '*': [global_cmvn]}", 9.0),
    ],
)
def test_transforms_are_chosen_as_in_the_papers_code(
    checkpoint: Path, transforms: str, mean: float
) -> None:
    """None where nothing stands; those for evaluation before those for everything."""
    path = checkpoint.parent / SETTINGS
    path.write_text(CONFIGURATION.replace(TRANSFORMS, transforms))
    assert float(load_checkpoint(checkpoint).normalisation.mean[0]) == mean


@pytest.mark.parametrize(
    ("transforms", "told"),
    [
        ("{'_eval': [utterance_cmvn], '*': [global_cmvn]}", r"\['utterance_cmvn'\]"),
        ("[global]", r"\['global'\]"),
        ("7", "7"),
    ],
)
def test_other_transforms_are_refused(checkpoint: Path, transforms: str, told: str) -> None:
    """Features of another kind would be wrong without a word."""
    path = checkpoint.parent / SETTINGS
    path.write_text(CONFIGURATION.replace(TRANSFORMS, transforms))
    with pytest.raises(CheckpointError, match=f"transforms are {told}; allowed"):
        load_checkpoint(checkpoint)


def _saved(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def _claiming(shape: str) -> bytes:
    """Statistics whose mean claims a shape."""
    described = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("mean.npy", b"\x93NUMPY\x01\x00\x76\x00" + described.encode())
    return content.getvalue()


def _alone() -> bytes:
    content = io.BytesIO()
    np.save(content, np.ones(80))
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (SETTINGS, b"a: 2020-99-99", "is not readable YAML .*month"),
        (SETTINGS, b"a: !!timestamp never", "is not readable YAML"),
        ("tgt.txt", b"\xff\xfe 1\n", r"tgt\.txt is not UTF-8"),
        ("gcmvn.npz", b"", r"gcmvn\.npz does not hold mean and std"),
        ("gcmvn.npz", _alone(), "does not hold mean and std"),
        ("gcmvn.npz", _saved(mean=np.ones(80)), "does not hold mean and std"),
        ("gcmvn.npz", _saved(mean=np.array(["a"]), std=np.ones(80)), "does not hold mean"),
        ("gcmvn.npz", _saved(mean=np.ones(80) * 1j, std=np.ones(80)), "does not hold mean"),
        ("gcmvn.npz", _claiming(f"({10**15},)"), "does not hold mean"),
        (
            "gcmvn.npz",
            _saved(mean=np.zeros(2**18), std=np.ones(80)),
            "unpacks to 2098.* bytes; allowed: 1048576",
        ),
    ],
)
def test_damaged_files_are_refused(
    checkpoint: Path, name: str, content: bytes, message: str
) -> None:
    """Whatever breaks inside, and however large it claims to be, the error is ours."""
    (checkpoint.parent / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(checkpoint)


def test_symbols_may_hold_line_separators(checkpoint: Path) -> None:
    """Only a newline ends a dictionary's line, as in the papers' code."""
    path = checkpoint.parent / "tgt.txt"
    path.write_text(path.read_text() + "a\u2028b 1\n")
    assert read_parts(checkpoint).target_vocabulary.pieces[-1] == "a\u2028b"


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_embed_dim": 0},
        {"encoder_embed_dim": "wide"},
        {"conv_kernel_sizes": "five"},
        {"conv_kernel_sizes": [5, 5, 5]},
    ],
    ids=str,
)
def test_impossible_options_are_refused(
    checkpoint: Path, released_config: ModelConfig, options: dict[str, object]
) -> None:
    """An option of another type or value than arithmetic takes is an error of ours."""
    given = papers_options(released_config)
    for name, value in options.items():
        setattr(given, name, value)
    state = papers_names(random_network(released_config).state_dict())
    torch.save({"args": given, "model": state}, checkpoint)
    with pytest.raises(CheckpointError, match="describe no network"):
        load_checkpoint(checkpoint)


def test_tensors_without_axes_are_refused(checkpoint: Path, released_config: ModelConfig) -> None:
    """A single number where a matrix says how large the vocabulary is."""
    state = papers_names(random_network(released_config).state_dict())
    state["encoder.ctc_fc.weight"] = torch.tensor(1.0)
    torch.save({"args": papers_options(released_config), "model": state}, checkpoint)
    with pytest.raises(CheckpointError, match="describe no network"):
        load_checkpoint(checkpoint)
