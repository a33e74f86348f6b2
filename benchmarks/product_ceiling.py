"""What this machine's matrix products reach at best: the measure for everything else."""

from __future__ import annotations

from collections.abc import Callable

import torch
from stopwatch import best_ms

from earvoice.models.inference import packed_weight

SHAPES = ((512, 512), (512, 2048), (2048, 512))
"""Inputs and outputs of the papers' layers."""
ROWS = (64, 256, 512)


def ceiling_gflops(dtype: torch.dtype, rounds: int = 5) -> float:
    """The most that packed oneDNN products of the papers' sizes reach, in 10⁹ operations a second.

    A multiplication and an addition count as two. The best of all shapes and rounds; for int8 it
    is the bare product, without what turns numbers into integers and back.
    """
    return max(_gflops(dtype, shape, rows, rounds) for shape in SHAPES for rows in ROWS)


def _gflops(dtype: torch.dtype, shape: tuple[int, int], rows: int, rounds: int) -> float:
    inputs, outputs = shape
    operations = 2 * rows * inputs * outputs
    return operations / best_ms(_product(dtype, rows, inputs, outputs), rounds) / 1e6


def _product(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> Callable[[], object]:
    values, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    if dtype == torch.int8:
        small, matrix = values.to(dtype), weight.to(dtype).T
        return lambda: torch._int_mm(small, matrix)  # noqa: SLF001 - it has no public name
    rounded, packed = values.to(dtype), packed_weight(weight.to(dtype))
    return lambda: torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - it has no public name
        rounded, packed, None, "none", [], ""
    )
