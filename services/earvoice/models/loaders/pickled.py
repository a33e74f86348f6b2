"""Reading a zipped PyTorch checkpoint without giving its pickle any power.

A pickle is a program. This reader knows the few constructors that the papers' checkpoints use and
refuses everything else, so that a hostile file can at worst be wrong. Tensors are read from the
archive's own storages; nothing is imported by name.

`torch.load(weights_only=True)` runs nothing either, but it is less strict. With `mmap` it hands out
tensors that reach past their storage, and past the file; without, it reads what training left
beside the model, and unpacks compressed entries before anything can be checked.
"""

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from earvoice.models.errors import CheckpointError

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


ReadStorage = Callable[[str, torch.dtype, int], torch.Tensor]
"""From a storage's key, element type and number of elements to its elements."""


class Storage(NamedTuple):
    """One storage of the archive; immutable, like all that a pickle is given."""

    key: str
    dtype: torch.dtype
    elements: int
    read: ReadStorage


class StoredTensor(NamedTuple):
    """A tensor of the archive that is read on demand.

    A checkpoint from training holds the optimizer's state as well, twice the size of the model.
    """

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def read(self) -> torch.Tensor:
        key, dtype, elements, read = self.storage
        return read(key, dtype, elements).as_strided(self.size, self.stride, self.offset)


def rebuilt_tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> StoredTensor:
    """Describe a tensor as its pickle does; whether it requires a gradient does not matter."""
    counts = (offset, *size, *stride, math.prod(size))
    if not isinstance(storage, Storage) or not all(map(_is_count, counts)):
        message = "a tensor in the checkpoint has no storage, or a negative size, offset or stride"
        raise CheckpointError(f"{message}, or one that is not a 64-bit integer")
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    if math.prod(size) and reach > storage.elements:
        message = f"a tensor of size {size} reaches past its storage of {storage.elements}"
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
"""Classes of the configuration library that a pickle may contain."""


def unwrapped(value: Any) -> Any:
    """What is inside an object of the configuration library: a dictionary, a list, or a value.

    What is nested in it stays wrapped: a few bytes of pickle nest more than memory holds.
    """
    held = vars(value) if isinstance(value, SimpleNamespace) else {}
    return held.get("_content", held.get("_val", value))


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the names a checkpoint needs."""

    def __init__(self, content: bytes, read_storage: ReadStorage) -> None:
        _check_memo(content)
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self._read_storage = read_storage

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = (module_name, global_name)
        plain: dict[tuple[str, str], Any] = {
            # Its instances hold attributes, but a pickle cannot set any on the class itself.
            ("argparse", "Namespace"): SimpleNamespace,
            ("collections", "OrderedDict"): OrderedDict,
            ("collections", "defaultdict"): defaultdict,
            # Created anew each time, so that nothing that a pickle sets on them survives.
            ("torch._utils", "_rebuild_tensor_v2"): partial(rebuilt_tensor),
            ("torch._utils", "_rebuild_parameter"): partial(rebuilt_parameter),
        }
        builtins = {"dict": dict, "list": list, "set": set, "int": int, "long": int}
        if name in plain:
            return plain[name]
        if module_name in ("builtins", "__builtin__") and global_name in builtins:
            return builtins[global_name]
        if module_name == "torch" and global_name in STORAGE_TYPES:
            return STORAGE_TYPES[global_name]
        if name in CONFIG_CONTAINERS:
            return SimpleNamespace
        raise CheckpointError(
            f"the checkpoint's pickle asks for {module_name}.{global_name}; "
            "allowed are tensors, argparse.Namespace, collections and omegaconf containers. "
            "Nothing was executed."
        )

    def persistent_load(self, pid: Any, /) -> Storage:
        """Resolve a storage, `("storage", type, key, location, element count)`."""
        try:
            kind, dtype, key, _location, count = pid
        except (TypeError, ValueError) as error:
            # Never the reference itself: a few bytes of pickle nest to endless text.
            message = f"persistent reference of {type(pid)}; allowed: a storage of five fields"
            raise CheckpointError(message) from error
        if (
            kind != "storage"
            or not isinstance(dtype, torch.dtype)
            or not isinstance(key, str)
            or not _is_count(count)
        ):
            message = "persistent reference of five other fields; allowed: those of a storage"
            raise CheckpointError(message)
        return Storage(key, dtype, count, self._read_storage)


def _check_memo(content: bytes) -> None:
    """Refuse a memo index that leaves a gap: the memo is an array, one index can fill memory."""
    stored = 0
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            if argument is None or argument > stored:
                message = f"the checkpoint's pickle stores object {argument} after {stored} others"
                raise CheckpointError(message)
            stored += 1


MAX_PICKLE_BYTES = 64 * 2**20


@contextmanager
def open_archive(path: Path) -> Iterator[dict[str, Any]]:
    """Read a `.pt` file in PyTorch's zip format.

    Yields:
        The pickled dictionary; namespaces and configuration objects are `SimpleNamespace`s, tensors
        `StoredTensor`s that can be read as long as the archive is open.

    Raises:
        CheckpointError: not such an archive, damaged, compressed, its pickle too large, or it asks
            for anything a checkpoint never needs.
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

    @cache
    def read_storage(key: str, dtype: torch.dtype, count: int) -> torch.Tensor:
        content = _read(archive, f"{entry.removesuffix('data.pkl')}data/{key}", name)
        if len(content) != count * dtype.itemsize:
            message = f"storage {key} has {len(content)} bytes; {count} elements are declared"
            raise CheckpointError(message)
        empty = torch.empty(0, dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=dtype) if content else empty

    try:
        content = RestrictedUnpickler(_read(archive, entry, name), read_storage).load()
    except CheckpointError:
        raise
    except Exception as error:
        # A damaged pickle raises almost any built-in exception, depending on where it breaks.
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
        raise CheckpointError(
            f"checkpoint {name} has a pickle of {pickles[0].file_size} bytes; "
            f"allowed: {MAX_PICKLE_BYTES}"
        )
    return pickles[0].filename


def _read(archive: zipfile.ZipFile, entry: str, name: str) -> bytes:
    try:
        return archive.read(entry)
    except KeyError as error:
        raise CheckpointError(f"checkpoint {name} lacks {entry}") from error
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        # The last two: a name that is no UTF-8, an entry that claims to be encrypted.
        raise CheckpointError(f"checkpoint {name}: {entry} is damaged ({error})") from error
