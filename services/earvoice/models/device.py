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


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether products in bf16 are computed, and not imitated."""
    supported = False
    if device.type == "cuda":
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        supported = torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001 - it has no public name
    return supported
