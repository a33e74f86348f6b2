"""Reading a zipped PyTorch checkpoint without giving its pickle any power.

A pickle is a program. This reader knows the few constructors that the papers' checkpoints use and
refuses everything else, so that a hostile file can at worst be wrong. Tensors are read from the
archive's own storages; nothing is imported by name.
"""

import argparse
import io
import math
import pickle
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from earvoice.models.errors import CheckpointError, UnsafePickleError

STORAGE_TYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
"""Storage classes by their name under `torch`, and the element type each stands for."""

CONFIG_CONTAINERS = frozenset(
    {
        ("omegaconf.dictconfig", "DictConfig"),
        ("omegaconf.listconfig", "ListConfig"),
        ("omegaconf.nodes", "AnyNode"),
        ("omegaconf.base", "ContainerMetadata"),
        ("omegaconf.base", "Metadata"),
        ("typing", "Any"),
    }
)
"""Classes of the configuration library that may stand in a pickle; each becomes an `Opaque`."""

MAX_PICKLE_BYTES = 64 * 2**20


class Opaque:
    """Stands for one object of the configuration library: it only holds its attributes."""

    def __init__(self, *_arguments: object) -> None:
        self.attributes: dict[str, Any] = {}

    def __setstate__(self, state: object) -> None:
        """Keep a dictionary of attributes, ignore any other state."""
        if isinstance(state, dict):
            self.attributes = state

    def plain(self) -> Any:
        """The dictionary, list or value inside, with all nested containers opened."""
        content = self.attributes.get("_content", self.attributes.get("_val"))
        return _opened(content)


def _opened(content: Any) -> Any:
    if isinstance(content, Opaque):
        return content.plain()
    if isinstance(content, dict):
        return {key: _opened(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_opened(value) for value in content]
    return content


class _StorageType:
    """What a storage class in the pickle becomes: the element type's name, not callable."""

    def __init__(self, name: str) -> None:
        self.dtype = STORAGE_TYPES[name]


class _Storage:
    """One storage of the archive, read when a tensor first needs it."""

    def __init__(self, flat: torch.Tensor) -> None:
        self.flat = flat


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the names a checkpoint needs."""

    def __init__(self, content: bytes, read_storage: Callable[[str], bytes]) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self._read_storage = read_storage
        self._storages: dict[str, _Storage] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Give the constructor of an allowed name.

        Raises:
            UnsafePickleError: any other name.
        """
        name = (module_name, global_name)
        plain: dict[tuple[str, str], Any] = {
            ("argparse", "Namespace"): argparse.Namespace,
            ("collections", "OrderedDict"): OrderedDict,
            ("collections", "defaultdict"): defaultdict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuilt_tensor,
            ("torch._utils", "_rebuild_parameter"): _rebuilt_parameter,
        }
        builtins = {"dict": dict, "list": list, "set": set, "int": int, "long": int}
        if name in plain:
            return plain[name]
        if module_name in ("builtins", "__builtin__") and global_name in builtins:
            return builtins[global_name]
        if module_name == "torch" and global_name in STORAGE_TYPES:
            return _StorageType(global_name)
        if name in CONFIG_CONTAINERS:
            return Opaque
        message = (
            f"the checkpoint's pickle asks for {module_name}.{global_name}; "
            "allowed are tensors, argparse.Namespace, collections and omegaconf containers. "
            "Nothing was executed."
        )
        raise UnsafePickleError(message)

    def persistent_load(self, pid: Any, /) -> _Storage:
        """Resolve a storage, `("storage", type, key, location, element count)`.

        Raises:
            CheckpointError: the reference has another form, or the storage another size.
        """
        try:
            kind, storage_type, key, _location, count = pid
        except (TypeError, ValueError) as error:
            message = f"persistent reference {pid!r}; allowed: a storage of five fields"
            raise CheckpointError(message) from error
        if (
            kind != "storage"
            or not isinstance(storage_type, _StorageType)
            or not isinstance(count, int)
        ):
            message = f"persistent reference {kind!r}; allowed: 'storage'"
            raise CheckpointError(message)
        if key not in self._storages:
            content = self._read_storage(str(key))
            if len(content) != count * storage_type.dtype.itemsize:
                message = f"storage {key} has {len(content)} bytes; {count} elements are declared"
                raise CheckpointError(message)
            flat = torch.frombuffer(bytearray(content), dtype=storage_type.dtype)
            self._storages[key] = _Storage(flat if count else torch.empty(0))
        return self._storages[key]


def _rebuilt_tensor(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> torch.Tensor:
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    if not isinstance(storage, _Storage) or offset < 0 or min(stride, default=0) < 0:
        message = "a tensor in the checkpoint has no storage, or a negative offset or stride"
        raise CheckpointError(message)
    if math.prod(size) and reach > storage.flat.numel():
        message = f"a tensor of size {size} reaches past its storage of {storage.flat.numel()}"
        raise CheckpointError(message)
    return storage.flat.as_strided(size, stride, offset)


def _rebuilt_parameter(value: torch.Tensor, *_rest: object) -> torch.Tensor:
    return value


def read_checkpoint_archive(path: Path) -> dict[str, Any]:
    """Read a `.pt` file in PyTorch's zip format.

    Returns:
        The pickled dictionary; configuration objects are `Opaque`, tensors are on the CPU.

    Raises:
        CheckpointError: not such an archive, damaged, compressed, or its pickle too large.
        UnsafePickleError: its pickle asks for anything a checkpoint never needs.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive, path.name)
    except (zipfile.BadZipFile, OSError) as error:
        message = f"checkpoint {path.name}: not a readable zip archive ({error})"
        raise CheckpointError(message) from error


def _read_archive(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    pickles = [entry for entry in sizes if entry.endswith("/data.pkl")]
    if len(pickles) != 1:
        message = f"checkpoint {name} has {len(pickles)} entries data.pkl; allowed: exactly 1"
        raise CheckpointError(message)
    folder = pickles[0].removesuffix("data.pkl")
    compressed = [
        entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED
    ]
    if compressed:
        message = f"checkpoint {name} compresses {compressed[0]}; allowed: stored entries"
        raise CheckpointError(message)
    if sizes[pickles[0]] > MAX_PICKLE_BYTES:
        message = (
            f"checkpoint {name} has a pickle of {sizes[pickles[0]]} bytes; "
            f"allowed: {MAX_PICKLE_BYTES}"
        )
        raise CheckpointError(message)

    def read_storage(key: str) -> bytes:
        entry = f"{folder}data/{key}"
        if entry not in sizes:
            message = f"checkpoint {name} lacks the storage {key!r}"
            raise CheckpointError(message)
        return archive.read(entry)

    try:
        content = RestrictedUnpickler(archive.read(pickles[0]), read_storage).load()
    except CheckpointError:
        raise
    except Exception as error:
        # A damaged pickle raises almost any built-in exception, according to where it breaks.
        message = f"checkpoint {name}: its pickle is damaged ({type(error).__name__}: {error})"
        raise CheckpointError(message) from error
    if not isinstance(content, dict):
        message = f"checkpoint {name} holds a {type(content).__name__}; allowed: a dictionary"
        raise CheckpointError(message)
    return content
