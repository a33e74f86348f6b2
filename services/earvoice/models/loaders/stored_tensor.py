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


class Storage:
    """One storage of the archive; its bytes are read when a tensor that is wanted needs them."""

    def __init__(
        self, key: str, dtype: torch.dtype, count: int, read: Callable[[str], bytes]
    ) -> None:
        self.count = count
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
            if len(content) != self.count * self._dtype.itemsize:
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
    """

    def __init__(
        self, storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        self.numel = math.prod(size)
        self._storage = storage
        self._offset = offset
        self._size = size
        self._stride = stride

    def read(self) -> torch.Tensor:
        """The tensor, on the CPU.

        Raises:
            CheckpointError: its storage is missing or of another size.
        """
        return self._storage.flat().as_strided(self._size, self._stride, self._offset)


def rebuilt_tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> StoredTensor:
    """Describe a tensor as its pickle does; whether it requires a gradient does not matter.

    Raises:
        CheckpointError: it would reach outside its storage.
    """
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    if not isinstance(storage, Storage) or offset < 0 or min((*size, *stride), default=0) < 0:
        message = "a tensor in the checkpoint has no storage, or a negative size, offset or stride"
        raise CheckpointError(message)
    if math.prod(size) and reach > storage.count:
        message = f"a tensor of size {size} reaches past its storage of {storage.count}"
        raise CheckpointError(message)
    return StoredTensor(storage, offset, size, stride)


def rebuilt_parameter(value: StoredTensor, *_rest: object) -> StoredTensor:
    """A parameter is its tensor."""
    return value
