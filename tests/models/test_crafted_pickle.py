"""Pickles that ask for nothing forbidden, and would still fill memory or break in odd places."""

import argparse
import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from earvoice.models.errors import CheckpointError
from earvoice.models.loaders.fairseq import read_fairseq

pytestmark = pytest.mark.torch

LEVELS = 60
"""Lists of two that are the same list: a kilobyte of pickle, 2⁶⁰ items when written out."""


def _nested() -> list[Any]:
    nested: list[Any] = []
    for _ in range(LEVELS):
        nested = [nested, nested]
    return nested


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def _read(folder: Path, content: bytes) -> None:
    """Read a checkpoint with this pickle and one storage of four numbers."""
    path = folder / "crafted.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint/data.pkl", content)
        archive.writestr("checkpoint/data/0", bytes(16))
    read_fairseq(path, "en", "de")


@pytest.mark.parametrize("inside", [_nested(), _endless()], ids=["nested", "endless"])
def test_configurations_stay_closed(tmp_path: Path, inside: object) -> None:
    """A configuration that unfolds to more than memory holds is refused, and not unfolded."""
    held = pickle.dumps({"_content": inside}, 2)[2:-1]
    config = b"comegaconf.dictconfig\nDictConfig\n)R" + held + b"b"
    with pytest.raises(CheckpointError, match=r"has no cfg\.model with options"):
        _read(tmp_path, b"\x80\x02}X\x03\x00\x00\x00cfg" + config + b"s.")


def test_options_are_told_as_they_are_short(tmp_path: Path) -> None:
    """What stands where a scalar is expected is named by its type, not written out."""
    options = argparse.Namespace(activation_fn=_nested())
    with pytest.raises(CheckpointError, match=r"activation_fn is <class 'list'>; allowed: 'relu'"):
        _read(tmp_path, pickle.dumps({"args": options, "model": {}}, 2))
    options = argparse.Namespace(input_channels=10**5000)
    with pytest.raises(CheckpointError, match=r"input_channels is <class 'int'>; allowed: 1"):
        _read(tmp_path, pickle.dumps({"args": options, "model": {}}, 2))


@pytest.mark.parametrize(
    "reference", [_nested(), ("storage", _nested(), "0", "cpu", 4), (_nested(), 1, 2, 3, 4)]
)
def test_references_are_not_written_out(tmp_path: Path, reference: object) -> None:
    """A reference to a storage that is none is refused without its text."""
    with pytest.raises(CheckpointError, match="persistent reference of"):
        _read(tmp_path, pickle.dumps(reference, 2)[:-1] + b"Q.")


class _Storage:
    """Becomes a reference to a storage of so many numbers."""

    def __init__(self, count: int) -> None:
        self.count = count


class _Tensor:
    """Becomes what a pickle says of a tensor."""

    def __init__(self, storage: _Storage, *shape: object) -> None:
        self.fields = (storage, *shape, False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return torch._utils._rebuild_tensor_v2, self.fields


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        found = isinstance(obj, _Storage)
        return ("storage", torch.FloatStorage, "0", "cpu", obj.count) if found else None


def _checkpoint(name: object, tensor: _Tensor) -> bytes:
    content = io.BytesIO()
    model = {"args": argparse.Namespace(), "model": {name: tensor}}
    _Pickler(content, 2).dump(model)
    return content.getvalue()


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (4.0,), (1,)),
        (0, (True,), (1,)),
        (0.0, (4,), (1,)),
        (0, (1,), (2**70,)),
        (0, (0, 2**70), (1, 1)),
        (0, (2**40, 2**40), (0, 0)),
        (2**70, (0,), (1,)),
        (0, (4,), (1, 1)),
        (0, 4, 1),
    ],
)
def test_shapes_are_of_whole_numbers(
    tmp_path: Path, offset: object, size: object, stride: object
) -> None:
    """A size, stride or offset that torch would not take is refused before torch sees it."""
    with pytest.raises(CheckpointError, match=r"a negative size, offset or stride|is damaged"):
        _read(tmp_path, _checkpoint("a", _Tensor(_Storage(4), offset, size, stride)))


class _Changed(_Tensor):
    """Becomes a tensor, and then sets what it was checked for."""

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"size": (2**40,)}


def test_what_was_checked_stays(tmp_path: Path) -> None:
    """No pickle changes a tensor after its size was compared with its storage."""
    with pytest.raises(CheckpointError, match=r"its pickle is damaged \(AttributeError"):
        _read(tmp_path, _checkpoint("a", _Changed(_Storage(4), 0, (4,), (1,))))


def test_tensors_have_names(tmp_path: Path) -> None:
    """A tensor under a number is no tensor of a network."""
    with pytest.raises(CheckpointError, match="allowed: a dictionary of tensors by name"):
        _read(tmp_path, _checkpoint(7, _Tensor(_Storage(4), 0, (4,), (1,))))


def test_storages_count_against_memory(tmp_path: Path) -> None:
    """One number out of a storage takes the memory of all of it: that is looked at before."""
    with pytest.raises(CheckpointError, match=r"needs [\d,]+ MiB"):
        _read(tmp_path, _checkpoint("a", _Tensor(_Storage(2**45), 0, (1,), (1,))))


def _directory_entry(content: bytes) -> int:
    """Where the archive's last directory entry begins."""
    return content.rindex(b"PK\x01\x02")


@pytest.mark.parametrize(
    ("place", "value"),
    [(8, 0x20), (8, 0x01), (46, 0xFF), (6, 0xFF)],
    ids=["patched", "encrypted", "a name that is no UTF-8", "a later version"],
)
def test_other_archives_are_refused(tmp_path: Path, place: int, value: int) -> None:
    """A flipped bit in the archive's directory, wherever the library notices it, is our error."""
    path = tmp_path / "damaged.pt"
    with zipfile.ZipFile(path, "w") as archive:
        tensor = _Tensor(_Storage(4), 0, (4,), (1,))
        archive.writestr("checkpoint/data.pkl", _checkpoint("a", tensor))
        archive.writestr("checkpoint/data/0é", bytes(16))
        archive.writestr("checkpoint/data/0", bytes(16))
    content = bytearray(path.read_bytes())
    entry = _directory_entry(bytes(content))
    content[entry + place] = value
    if place == 46:
        content[entry + 9] |= 0x08
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged\.pt"):
        read_fairseq(path, "en", "de")
