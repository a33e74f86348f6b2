"""The training loop: for a budget of processor seconds, over as many starts as it takes."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from earvoice.models.transformer import MultiHeadAttention
from earvoice.runtime.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch.optim.optimizer import ParamsT

WARMUP_STEPS = 100
SAVE_EVERY_S = 120
REPORT_EVERY_STEPS = 50

Drawn = TypeVar("Drawn")
"""What a step learns from."""


def optimiser(parameters: ParamsT, peak: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)


def rate(step: int, share: float) -> float:
    """The share of the peak rate at a step: a short warm-up, then a cosine to a twentieth.

    `share` is the share of the time that is over.
    """
    cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return min(1.0, (step + 1) / WARMUP_STEPS) * cosine


def without_attention_dropout(network: nn.Module) -> None:
    """Remove it: on a CPU it makes attention 1.5 times as slow, in a decoder 3 times."""
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            module.dropout = 0.0


def report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class OtherBeginningError(RuntimeError):
    """A state was begun from something else than what its step would begin from now."""


class Trainer(ABC, Generic[Drawn]):
    """Trains step by step; keeps its state in a file, from which the next start continues.

    Args:
        network: its parameters are averaged; those that require no gradient stay frozen.
        peaks: groups of parameters that learn, each with its peak learning rate.
        average: decay of the moving average of the weights, per step.
    """

    losses: ClassVar[tuple[str, ...]] = ("loss",)
    """What `learn` returns, in this order."""
    part: ClassVar[str]
    """The network's name in the file."""

    def __init__(
        self,
        network: nn.Module,
        peaks: Iterable[tuple[Iterable[nn.Parameter], float]],
        average: float,
    ) -> None:
        self.network, parameters = network, dict(network.named_parameters())
        learning = [(list(own), peak) for own, peak in peaks]
        self.peaks = [peak for _, peak in learning]
        groups = [{"params": own, "lr": peak} for own, peak in learning]
        self.optimiser = optimiser(groups, max(self.peaks))
        self.step, self.used_s = 0, 0.0
        self.average = {name: p.detach().clone() for name, p in parameters.items()}
        self._learning = {name: p for name, p in parameters.items() if p.requires_grad}
        self._kept_share = average

    @abstractmethod
    def steps(self, generator: np.random.Generator) -> Iterator[Drawn]:
        """An endless stream of what each step learns from."""

    @abstractmethod
    def backward(self, drawn: Drawn) -> np.ndarray:
        """Add up the gradients of a step; return its losses."""

    def state(self) -> dict[str, Any]:
        """The state for the file."""
        return {self.part: self.network.state_dict(), "average": self.average}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; what is not in it stays as it is."""
        self.network.load_state_dict(state[self.part], strict=False)
        for name, value in state["average"].items():
            self.average[name].copy_(value)

    def train(self, path: Path, seconds: float, seed: int = 1, begun_from: str = "") -> None:
        """Train until `seconds` of processor time are used in all; the state is kept in `path`.

        Args:
            begun_from: a digest of what the network and the choices come from.

        Raises:
            OtherBeginningError: the state in `path` has another.
        """
        if path.exists():
            kept = torch.load(path, weights_only=True)
            if kept.get("begun_from", begun_from) != begun_from:
                raise OtherBeginningError(
                    f"{path} was begun from other weights, vocabularies, --seed or --wait-k: "
                    "delete it to begin this step anew"
                )
            self.restore(kept)
            if "optimiser" in kept:
                self.optimiser.load_state_dict(kept["optimiser"])
            self.step, self.used_s = kept["step"], kept["used"]
        self._begun_from = begun_from
        steps = self.steps(np.random.default_rng((seed, self.step)))
        began_s, saved_s = time.process_time() - self.used_s, self.used_s
        mean = np.zeros(len(self.losses))
        while self.used_s < seconds:
            self.used_s = time.process_time() - began_s
            losses = self.learn(next(steps), self.used_s / seconds)
            mean = 0.98 * mean + 0.02 * losses if mean.any() else losses
            if self.step % REPORT_EVERY_STEPS == 0:
                told = (
                    f"{name} {value:.3f}" for name, value in zip(self.losses, mean, strict=True)
                )
                report(f"{self.step} {self.used_s:.0f} s, {', '.join(told)}")
            if self.used_s - saved_s > SAVE_EVERY_S:
                self._save(path)
                saved_s = self.used_s
        self._save(path)

    def learn(self, drawn: Drawn, share: float) -> np.ndarray:
        """One step; returns its losses.

        Args:
            share: share of the time that is over.
        """
        self.optimiser.zero_grad()
        losses = self.backward(drawn)
        nn.utils.clip_grad_norm_(self._learning.values(), 1.0)
        for group, peak in zip(self.optimiser.param_groups, self.peaks, strict=True):
            group["lr"] = peak * rate(self.step, share)
        self.optimiser.step()
        self.step += 1
        kept = min(self._kept_share, self.step / (self.step + 10))
        torch._foreach_lerp_(
            [self.average[name] for name in self._learning],
            [p.detach() for p in self._learning.values()],
            1 - kept,
        )
        return losses

    def _save(self, path: Path) -> None:
        progress = {
            "optimiser": self.optimiser.state_dict(), "step": self.step, "used": self.used_s,
            "begun_from": self._begun_from,
        }  # fmt: skip
        with atomic_write(path) as partial:
            torch.save(self.state() | progress, partial)
