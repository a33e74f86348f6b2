"""The processes that train one network together, started by ``torchrun``."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import torch

# Its functions' defaults hold the group that there is at their import. Imported later, as by the
# first optimiser, they would keep it beyond `leave`, and its threads beyond Python: one that still
# frees a tensor then aborts the process.
import torch.distributed.nn.functional
from torch import distributed

from earvoice.training.device import CPU

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_PATIENCE = timedelta(minutes=30)
"""So long the others wait while the first process measures and saves."""


class Peers(Protocol):
    """What the trainer asks of the processes beside it."""

    rank: int
    """This process, from 0; only the first one writes and measures."""
    count: int
    """How many there are."""

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its mean over all processes."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the mean of each value over all processes."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each value over all processes."""

    def leave(self) -> None:
        """Tell the others that nothing more is shared."""


class NoPeers:
    """A process that trains alone."""

    rank = 0
    count = 1

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Leave the gradients as they are."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the values."""
        return list(values)

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the values."""
        return list(values)

    def leave(self) -> None:
        """Do nothing."""


class ProcessGroup:
    """Processes that share their gradients; each trains on its part of the batches."""

    def __init__(self, device: torch.device) -> None:
        """Join the group that the environment names; blocks until all have.

        GPUs share over NCCL, which needs one for each process; CPUs over gloo.
        """
        if device.type == "cuda":
            torch.cuda.set_device(device)
            distributed.init_process_group("nccl", timeout=_PATIENCE, device_id=device)
        else:
            distributed.init_process_group("gloo", timeout=_PATIENCE)
        self._device = device
        self.rank = distributed.get_rank()
        self.count = distributed.get_world_size()

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its mean over all processes; one without counts as zero.

        What no process has a gradient for is left without: the optimiser passes it over.
        """
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        found = self.largest([float(parameter.grad is not None) for parameter in trained])
        trained = [parameter for parameter, any_has in zip(trained, found, strict=True) if any_has]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        joined = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(joined)
        parts = torch.split(joined / self.count, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the mean of each value over all processes."""
        shared = torch.tensor(values, dtype=torch.float64, device=self._device)
        distributed.all_reduce(shared)
        return [value / self.count for value in shared.tolist()]

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each value over all processes."""
        shared = torch.tensor(values, dtype=torch.float64, device=self._device)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX)
        largest: list[float] = shared.tolist()
        return largest

    def leave(self) -> None:
        """Leave the group, after the last value that is shared; its threads end."""
        distributed.destroy_process_group()


def find_peers(environment: Mapping[str, str] = os.environ, device: torch.device = CPU) -> Peers:
    """Return the group of ``torchrun``'s environment, or nobody."""
    return ProcessGroup(device) if "WORLD_SIZE" in environment else NoPeers()
