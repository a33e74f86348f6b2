"""Tensors of a zipped PyTorch checkpoint, read from the archive when they are asked for."""

import math
from collections.abc import Callable

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
        """[count] elements, the same each time.

        Raises:
            CheckpointError: the archive has no such storage, or one of another size.
        """
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

    Attributes:
        numel: number of elements.
        storage: where they are.
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
        """The tensor, on the CPU.

        Raises:
            CheckpointError: its storage is missing or of another size.
        """
        return self.storage.flat().as_strided(self._size, self._stride, self._offset)


def rebuilt_tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> StoredTensor:
    """Describe a tensor as its pickle does; whether it requires a gradient does not matter.

    Raises:
        CheckpointError: it would reach outside its storage, or has no shape.
    """
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
    """A parameter is its tensor."""
    return value
