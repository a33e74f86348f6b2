"""Where a network is trained: numbers, time and chance differ between a CPU and a GPU."""

from __future__ import annotations

import os
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from earvoice.models.precision import DeviceError, chosen_device, has_fast_bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from earvoice.training.dataset import Batch
    from earvoice.training.text_data import TextBatch

_Batch = TypeVar("_Batch", "Batch", "TextBatch")

CPU = torch.device("cpu")


def training_device(
    wanted: Literal["auto", "cpu", "cuda"], environment: Mapping[str, str] = os.environ
) -> torch.device:
    """Return the device of this process; each that ``torchrun`` starts has a GPU of its own.

    Raises:
        DeviceError: there is no GPU, or not one for each process.
    """
    device = chosen_device(wanted)
    if device.type == "cpu":
        return device
    place, count = int(environment.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if place >= count:
        message = (
            f"device = {wanted!r}: this is process {place + 1} of the machine, and torch sees "
            f"{count} GPUs; allowed: as many processes as GPUs, or 'cpu'"
        )
        raise DeviceError(message)
    return torch.device("cuda", place)


def half_precision(device: torch.device) -> torch.autocast:
    """Return bf16 autocast where the device computes in bf16; elsewhere it would be slower."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=has_fast_bfloat16(device))


def moved(batch: _Batch, device: torch.device) -> _Batch:
    """Return a batch, which is made on the CPU, with its tensors on the device."""
    tensors = {part.name: getattr(batch, part.name).to(device) for part in fields(batch)}
    return replace(batch, **tensors)


def step_clock(device: torch.device) -> Callable[[], float]:
    """Return the clock, in seconds, that the time of a step is counted with.

    On a CPU it is processor time, which does not depend on who else uses the machine. Of a GPU's
    work the processor knows nothing, so the clock on the wall counts there.
    """
    return time.process_time if device.type == "cpu" else time.monotonic


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the states of all generators that a run on the device draws from."""
    states = {"random": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda_random"] = torch.cuda.get_rng_state(device)
    return states


def restore_random(states: Mapping[str, Any], device: torch.device) -> None:
    """Go on with `random_states`; a GPU's is missing where they were saved on a CPU."""
    torch.set_rng_state(states["random"])
    if device.type == "cuda" and "cuda_random" in states:
        torch.cuda.set_rng_state(states["cuda_random"], device)
