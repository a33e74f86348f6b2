"""Where a network computes, and in which numbers."""

from __future__ import annotations

from typing import Literal

import torch


class DeviceError(Exception):
    """The device asked for is not there."""


def chosen_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device to compute on; `auto` takes a GPU when there is one.

    Raises:
        DeviceError: `cuda` was asked for and there is no GPU.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError("device = 'cuda': torch sees no GPU; allowed here: 'cpu', 'auto'")
    return torch.device("cuda")


def chosen_dtype(wanted: Literal["fp32", "bf16", "auto"], device: torch.device) -> torch.dtype:
    """Return the number format of the matrix products; `auto` takes bf16 where it is fast."""
    if wanted == "auto":
        wanted = "bf16" if _has_fast_bfloat16(device) else "fp32"
    return torch.bfloat16 if wanted == "bf16" else torch.float32


def _has_fast_bfloat16(device: torch.device) -> bool:
    supported: bool = (
        torch.cuda.is_bf16_supported()
        if device.type == "cuda"
        else torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001 - it has no public name
    )
    return supported
