"""Reading a zipped PyTorch checkpoint without giving its pickle any power.

A pickle is a program. This reader knows the few constructors that the papers' checkpoints use and
refuses everything else, so that a hostile file can at worst be wrong. Tensors are read from the
archive's own storages; nothing is imported by name.
"""

import argparse
import io
import pickle
import pickletools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from earvoice.models.errors import CheckpointError, UnsafePickleError
from earvoice.models.loaders.stored_tensor import (
    STORAGE_TYPES,
    Storage,
    rebuilt_parameter,
    rebuilt_tensor,
)

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
        """Keep a dictionary of attributes, ignore any other state."""
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
        """Give the constructor of an allowed name.

        Raises:
            UnsafePickleError: any other name.
        """
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
        """Resolve a storage, `("storage", type, key, location, element count)`.

        Raises:
            CheckpointError: the reference has another form, or the storage another size.
        """
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
    """Refuse a memo index that leaves a gap: the memo is an array, which one index can fill memory.

    Raises:
        UnsafePickleError: such an index.
        ValueError: the pickle is damaged.
    """
    stored = 0
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            if argument is None or argument > stored:
                message = f"the checkpoint's pickle stores object {argument} after {stored} others"
                raise UnsafePickleError(message)
            stored += 1
