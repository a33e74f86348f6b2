"""The processes that train one network together, started by ``torchrun``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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


class ProcessGroup:
    """Processes that share their gradients over gloo; each trains on its part of the batches."""

    def __init__(self) -> None:
        """Join the group that the environment names; blocks until all have."""
        distributed.init_process_group("gloo")
        self.rank = distributed.get_rank()
        self.count = distributed.get_world_size()

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its mean over all processes; one without counts as zero."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
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
        shared = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(shared)
        return [float(value) / self.count for value in shared]

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the largest of each value over all processes."""
        shared = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX)
        return [float(value) for value in shared]


def find_peers(environment: Mapping[str, str] = os.environ) -> Peers:
    """Return the group of ``torchrun``'s environment, or nobody."""
    return ProcessGroup() if "WORLD_SIZE" in environment else NoPeers()
