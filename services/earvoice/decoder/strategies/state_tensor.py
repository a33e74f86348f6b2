"""States as they came over the wire, as a tensor."""

from __future__ import annotations

import torch

from earvoice.decoder.state_block import ElementType, StateBlock
from earvoice.runtime.errors import InvalidFieldError

_DTYPES = {
    ElementType.FLOAT32: torch.float32,
    ElementType.BFLOAT16: torch.bfloat16,
    ElementType.FLOAT16: torch.float16,
}


def state_tensor(states: StateBlock) -> torch.Tensor:
    """[S, d] float32 on the CPU.

    Raises:
        InvalidFieldError: a value is no number.
    """
    # A bytearray, because torch warns of buffers that it could not write to.
    flat = torch.frombuffer(bytearray(states.data), dtype=_DTYPES[states.element_type])
    matrix = flat.view(states.state_count, states.dimension).float()
    if not bool(torch.isfinite(matrix).all()):
        raise InvalidFieldError("states.data", "NaN or infinity", "finite numbers")
    return matrix
