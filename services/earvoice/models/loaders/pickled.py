"""Reading a zipped PyTorch checkpoint without giving its pickle any power.

A pickle is a program. This reader knows the few constructors that the papers' checkpoints use and
refuses everything else, so that a hostile file can at worst be wrong. Tensors are read from the
archive's own storages; nothing is imported by name.

`torch.load(weights_only=True)` runs nothing either, but it is less strict. Mapped into memory it
hands out tensors that reach past their storage, and past the file; unmapped it reads what training
left beside the model, and unpacks compressed entries before anything could be looked at.
"""

import argparse
import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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

COUNT_LIMIT = 2**63
"""Sizes, strides and offsets are integers of 64 bits."""


class Storage:
    """One storage of the archive; its bytes are read when a tensor that is wanted needs them."""

    def __init__(
        self, key: str, dtype: torch.dtype, count: int, read: Callable[[str], bytes]
    ) -> None:
        self.count = count
        self.size_bytes = count * dtype.itemsize
        self._key = key
        self._dtype = dtype
        self._read = read
        self._flat: torch.Tensor | None = None

    def flat(self) -> torch.Tensor:
        """[count] elements, the same each time."""
        if self._flat is None:
            content = self._read(self._key)
            if len(content) != self.size_bytes:
                message = (
                    f"storage {self._key} has {len(content)} bytes; "
                    f"{self.count} elements are declared"
                )
                raise CheckpointError(message)
            flat = torch.frombuffer(bytearray(content), dtype=self._dtype) if content else None
            self._flat = torch.empty(0, dtype=self._dtype) if flat is None else flat
        return self._flat


class StoredTensor:
    """A tensor of the archive that is read when it is asked for.

    A checkpoint from training holds the optimizer's state as well, twice the size of the model.
    """

    def __init__(
        self, storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        self.numel = math.prod(size)
        self.storage = storage
        self._offset = offset
        self._size = size
        self._stride = stride

    def read(self) -> torch.Tensor:
        return self.storage.flat().as_strided(self._size, self._stride, self._offset)


def rebuilt_tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> StoredTensor:
    """Describe a tensor as its pickle does; whether it requires a gradient does not matter."""
    counts = (offset, *size, *stride, math.prod(size))
    if not isinstance(storage, Storage) or not all(map(_is_count, counts)):
        message = "a tensor in the checkpoint has no storage, or a negative size, offset or stride"
        raise CheckpointError(f"{message}, or one that is no integer of 64 bits")
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    if math.prod(size) and reach > storage.count:
        message = f"a tensor of size {size} reaches past its storage of {storage.count}"
        raise CheckpointError(message)
    return StoredTensor(storage, offset, tuple(size), tuple(stride))


def _is_count(value: object) -> bool:
    # A pickle's numbers may be of any type; a bool is an int by inheritance.
    return type(value) is int and 0 <= value < COUNT_LIMIT


def rebuilt_parameter(value: StoredTensor, *_rest: object) -> StoredTensor:
    return value


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


class _Sealed(type):
    """A class that a pickle cannot change: its BUILD opcode sets attributes on what it is given."""

    def __setattr__(cls, name: str, value: object) -> None:
        message = f"the checkpoint's pickle sets {cls.__name__}.{name}. Nothing was changed."
        raise UnsafePickleError(message)


class _Namespace(argparse.Namespace, metaclass=_Sealed):
    """Options as flat attributes."""


class Opaque(metaclass=_Sealed):
    """Stands for one object of the configuration library: it only holds its attributes."""

    def __init__(self, *_arguments: object) -> None:
        self.attributes: dict[str, Any] = {}

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.attributes = state

    @property
    def content(self) -> Any:
        """What is inside: a container's dictionary or list, or a node's value.

        What is nested in it stays closed: a few bytes of pickle nest more than memory holds.
        """
        return self.attributes.get("_content", self.attributes.get("_val"))


class _StorageType:
    """What a storage class in the pickle becomes: the element type's name, not callable."""

    def __init__(self, name: str) -> None:
        self.dtype = STORAGE_TYPES[name]


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the names a checkpoint needs."""

    def __init__(self, content: bytes, read_storage: Callable[[str], bytes]) -> None:
        _check_memo(content)
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self._read_storage = read_storage
        self._storages: dict[str, Storage] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = (module_name, global_name)
        plain: dict[tuple[str, str], Any] = {
            ("argparse", "Namespace"): _Namespace,
            ("collections", "OrderedDict"): OrderedDict,
            ("collections", "defaultdict"): defaultdict,
            # Made anew, so that nothing outlives what a pickle sets on them.
            ("torch._utils", "_rebuild_tensor_v2"): partial(rebuilt_tensor),
            ("torch._utils", "_rebuild_parameter"): partial(rebuilt_parameter),
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

    def persistent_load(self, pid: Any, /) -> Storage:
        """Resolve a storage, `("storage", type, key, location, element count)`."""
        try:
            kind, storage_type, key, _location, count = pid
        except (TypeError, ValueError) as error:
            # Never the reference itself: a few bytes of pickle nest to endless text.
            message = f"persistent reference of {type(pid)}; allowed: a storage of five fields"
            raise CheckpointError(message) from error
        if (
            kind != "storage"
            or not isinstance(storage_type, _StorageType)
            or not isinstance(key, str)
            or not isinstance(count, int)
        ):
            message = "persistent reference of five other fields; allowed: those of a storage"
            raise CheckpointError(message)
        known = self._storages.get(key)
        if known is None:
            known = Storage(key, storage_type.dtype, count, self._read_storage)
            self._storages[key] = known
        return known


def _check_memo(content: bytes) -> None:
    """Refuse a memo index that leaves a gap: the memo is an array, which one can fill memory."""
    stored = 0
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            if argument is None or argument > stored:
                message = f"the checkpoint's pickle stores object {argument} after {stored} others"
                raise UnsafePickleError(message)
            stored += 1


MAX_PICKLE_BYTES = 64 * 2**20


@contextmanager
def open_archive(path: Path) -> Iterator[dict[str, Any]]:
    """Read a `.pt` file in PyTorch's zip format.

    Yields:
        The pickled dictionary; configuration objects are `Opaque`, tensors `StoredTensor`s that can
        be read as long as the archive is open.

    Raises:
        CheckpointError: not such an archive, damaged, compressed, or its pickle too large.
        UnsafePickleError: its pickle asks for anything a checkpoint never needs.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        message = f"checkpoint {path.name}: not a readable zip archive ({error})"
        raise CheckpointError(message) from error
    with archive:
        yield _content(archive, path.name)


def _content(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    entry = _pickle_entry(archive, name)

    def read_storage(key: str) -> bytes:
        return _read(archive, f"{entry.removesuffix('data.pkl')}data/{key}", name)

    try:
        content = RestrictedUnpickler(_read(archive, entry, name), read_storage).load()
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


def _pickle_entry(archive: zipfile.ZipFile, name: str) -> str:
    pickles = [item for item in archive.infolist() if item.filename.endswith("/data.pkl")]
    if len(pickles) != 1:
        message = f"checkpoint {name} has {len(pickles)} entries data.pkl; allowed: exactly 1"
        raise CheckpointError(message)
    for item in archive.infolist():
        if item.compress_type != zipfile.ZIP_STORED:
            message = f"checkpoint {name} compresses {item.filename}; allowed: stored entries"
            raise CheckpointError(message)
    if pickles[0].file_size > MAX_PICKLE_BYTES:
        message = (
            f"checkpoint {name} has a pickle of {pickles[0].file_size} bytes; "
            f"allowed: {MAX_PICKLE_BYTES}"
        )
        raise CheckpointError(message)
    return pickles[0].filename


def _read(archive: zipfile.ZipFile, entry: str, name: str) -> bytes:
    try:
        return archive.read(entry)
    except KeyError as error:
        message = f"checkpoint {name} lacks {entry}"
        raise CheckpointError(message) from error
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        # The last two: a name that is no UTF-8, an entry that claims to be encrypted.
        message = f"checkpoint {name}: {entry} is damaged ({error})"
        raise CheckpointError(message) from error
