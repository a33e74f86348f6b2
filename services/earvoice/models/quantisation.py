"""Products in 8-bit integers: weights quantised once by output channel, inputs by row as they come.

Each row of the input has a scale of its own, so that a session's numbers do not depend on who
shares its batch.
"""

import torch

LARGEST = 127


class QuantisedMatrix:
    """A weight matrix in int8 with one scale for each output channel (symmetric)."""

    def __init__(self, weight: torch.Tensor) -> None:
        """Quantise [out, in] float32."""
        scales = _scales(weight)
        # [in, out] by strides, as the product takes it.
        self._values = (weight / scales).round_().to(torch.int8).T
        self._scales = scales.T.contiguous()

    def times(self, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """[…, in] float32 → […, out] float32."""
        flat = inputs.reshape(-1, inputs.shape[-1]).float()
        scales = _scales(flat)
        quantised = (flat / scales).round_().to(torch.int8)
        sums = torch._int_mm(quantised, self._values)  # noqa: SLF001 - it has no public name
        product = (sums * scales).mul_(self._scales)
        if bias is not None:
            product.add_(bias)
        return product.view(*inputs.shape[:-1], -1)


def _scales(rows: torch.Tensor) -> torch.Tensor:
    """[n, m] → [n, 1]: what 1 in 8 bits stands for in each row; 1 for a row of zeros.

    No number for a row that holds NaN or infinity, which 8 bits cannot say: so the result has it.
    """
    largest = rows.abs().amax(1, keepdim=True)
    return torch.where(largest == 0, torch.ones_like(largest), largest / LARGEST)
