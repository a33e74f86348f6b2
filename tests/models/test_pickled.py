"""Pickles in zipped checkpoints: the harmless ones are read, nothing in them is ever run."""

import argparse
import builtins
import importlib
import operator
import os
import pickle
import runpy
import subprocess
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from earvoice.models.errors import CheckpointError
from earvoice.models.loaders.pickled import open_archive

pytestmark = pytest.mark.torch


def _read(path: Path) -> dict[str, Any]:
    with open_archive(path) as content:
        return content


def _archive(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint/data.pkl", content)
    return path


class _Gadget:
    """Calls something when it is unpickled freely."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call = call
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


def _gadgets(trace: str) -> dict[str, _Gadget]:
    """What the known attacks do, each leaving a file where it ran."""
    code = f"open({trace!r}, 'w')"
    return {
        "builtins.eval": _Gadget(eval, code),
        "builtins.exec": _Gadget(exec, code),
        "builtins.getattr": _Gadget(getattr, argparse.Namespace, "__init__"),
        "builtins.__import__": _Gadget(builtins.__import__, "os"),
        "posix.system": _Gadget(os.system, f"touch {trace}"),
        "subprocess.Popen": _Gadget(subprocess.Popen, ["touch", trace]),
        "subprocess.check_call": _Gadget(subprocess.check_call, ["touch", trace]),
        "importlib.import_module": _Gadget(importlib.import_module, "os"),
        "runpy._run_code": _Gadget(runpy._run_code, code, {}),
        "functools.partial": _Gadget(partial, eval, code),
        "operator.methodcaller": _Gadget(operator.methodcaller, "system", f"touch {trace}"),
        "builtins.open": _Gadget(open, trace, "w"),
        "torch.storage._load_from_bytes": _Gadget(torch.storage._load_from_bytes, b""),
        "torch.serialization.load": _Gadget(torch.load, trace),
    }


@pytest.mark.parametrize("name", _gadgets("/"))
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_hostile_pickles_are_refused(tmp_path: Path, name: str, protocol: int) -> None:
    """What would run code is refused by its name, however deep it hides, and nothing has run."""
    trace = tmp_path / "trace"
    content = {"model": OrderedDict(a=[argparse.Namespace(b=_gadgets(str(trace))[name])])}
    path = _archive(tmp_path / "hostile.pt", pickle.dumps(content, protocol))
    with pytest.raises(CheckpointError, match=r"asks for [\w.]+; allowed"):
        _read(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    ["os\nsystem", "torch\nload", "torch._utils\n__builtins__", "argparse\nArgumentParser"],
)
def test_only_known_names_are_resolved(tmp_path: Path, name: str) -> None:
    """Neighbours of allowed names are refused like any other."""
    path = _archive(tmp_path / "named.pt", f"c{name}\n.".encode())
    with pytest.raises(CheckpointError, match="Nothing was executed"):
        _read(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps([1]), pickle.dumps({"a": 1})[:-3]],
    ids=["empty", "garbage", "a list", "cut off"],
)
def test_damaged_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever breaks inside, the error is ours."""
    with pytest.raises(CheckpointError):
        _read(_archive(tmp_path / "damaged.pt", content))


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no zip archive, or is missing, is an error of ours."""
    (tmp_path / "text.pt").write_text("no archive")
    for name in ("text.pt", "missing.pt"):
        with pytest.raises(CheckpointError, match="not a readable zip archive"):
            _read(tmp_path / name)


def test_compressed_archives_are_refused(tmp_path: Path) -> None:
    """An archive that could unpack to more than its own size is not read."""
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("checkpoint/data.pkl", bytes(2**20))
    with pytest.raises(CheckpointError, match="allowed: stored entries"):
        _read(tmp_path / "bomb.pt")


def _changed_tensor(folder: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """Four numbers as PyTorch saves them, the archive's entries changed."""
    path = folder / "tensor.pt"
    torch.save({"model": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, change(name, data))
    return path


def test_tensors_cannot_reach_outside_their_storage(tmp_path: Path) -> None:
    """A tensor that claims more than its storage holds is refused."""
    path = _changed_tensor(
        tmp_path, lambda name, data: data[:8] if name.endswith("data/0") else data
    )
    with open_archive(path) as content, pytest.raises(CheckpointError, match="0 has 8 bytes"):
        content["model"].read()


def test_classes_cannot_be_changed(tmp_path: Path) -> None:
    """A pickle that sets an attribute on a class it may name is refused: the class outlives it."""
    # The class, a state of (nothing, {"__eq__": 1}), and the opcode that applies it.
    content = b"cargparse\nNamespace\n(N(S'__eq__'\nI1\ndtb."
    with pytest.raises(CheckpointError, match="cannot set '__eq__'"):
        _read(_archive(tmp_path / "setting.pt", content))
    assert argparse.Namespace(a=1) == argparse.Namespace(a=1)


def test_functions_cannot_be_changed(tmp_path: Path) -> None:
    """What a pickle sets on a function it may name is gone with the pickle."""
    content = b"ctorch._utils\n_rebuild_tensor_v2\n(S'mark'\nI1\ndb."
    with pytest.raises(CheckpointError):
        _read(_archive(tmp_path / "setting.pt", content))
    path = tmp_path / "tensor.pt"
    torch.save({"model": torch.arange(4.0)}, path)
    with open_archive(path) as read:
        assert torch.equal(read["model"].read(), torch.arange(4.0))


def test_the_memo_cannot_fill_memory(tmp_path: Path) -> None:
    """An index that would make the reader allocate gigabytes is refused before it is used."""
    content = b"\x80\x02}r\xff\xff\xff\x7f."
    with pytest.raises(CheckpointError, match="stores object 2147483647 after 0 others"):
        _read(_archive(tmp_path / "memo.pt", content))


def test_tensors_cannot_have_negative_sizes(tmp_path: Path) -> None:
    """Sizes and strides that reach before a storage are refused."""
    # BININT1 4, TUPLE1: the size; BININT -4 in its place.
    path = _changed_tensor(
        tmp_path, lambda _, data: data.replace(b"K\x04\x85", b"J\xfc\xff\xff\xff\x85")
    )
    with pytest.raises(CheckpointError, match="negative size"):
        _read(path)
