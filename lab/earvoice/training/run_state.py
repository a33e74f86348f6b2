"""What a training run keeps on disk: a resumable state, and snapshots to average."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from earvoice.runtime.files import atomic_write
from earvoice.training.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AVERAGED_SNAPSHOTS = 7
_START = "start.sha256"


class OtherStartError(ValueError):
    """A run's weights belong to other vocabularies or statistics."""


@dataclass
class RunState:
    """Where a run stands.

    Attributes:
        step: optimiser steps done.
        epoch: epoch in progress, counted from 0.
        epoch_step: batches of that epoch already done.
        epoch_joined_share: the share of joined examples that epoch was planned with.
        elapsed_s: seconds spent on steps so far, over all interruptions, by `step_clock`.
        wall_s: the same by the clock, measuring and saving included.
        measured_s: of these `elapsed_s`, up to the last measurement.
        together: whether the halves of the network are trained together yet.
        ctc: running mean of the CTC loss, nats a transcript token.
        milestone: how many milestones have been kept.
        warmup_step: the step at which the learning rate began to rise, last.
        decayed: whether it has begun to fall.
    """

    step: int = 0
    epoch: int = 0
    epoch_step: int = 0
    epoch_joined_share: float = 0.0
    elapsed_s: float = 0.0
    wall_s: float = 0.0
    measured_s: float = 0.0
    together: bool = False
    ctc: float = 10.0
    milestone: int = 0
    warmup_step: int = 0
    decayed: bool = False


def default_run_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where runs are kept unless told otherwise.

    ``$XDG_STATE_HOME/earvoice/training``, or ``~/.local/state/earvoice/training``.
    """
    state_home = environment.get("XDG_STATE_HOME")
    base = Path(state_home) if state_home else Path.home() / ".local" / "state"
    return base / "earvoice" / "training"


class RunFolder:
    """The folder of one run.

    ``latest.pt``, ``before-decay.pt``, ``snapshots/STEP.pt``, ``milestones/NUMBER.pt``,
    ``curve.csv`` and ``start.sha256``.

    The last `snapshots` stay, and those around the best measurement. Every file is written
    beside its name and then moved there: an interruption at any moment leaves the last complete
    one.
    """

    def __init__(self, folder: Path, snapshots: int = 8) -> None:
        """Open a run folder; it is made when missing."""
        self.folder = folder
        self._kept = snapshots
        (folder / "snapshots").mkdir(parents=True, exist_ok=True)
        (folder / "milestones").mkdir(exist_ok=True)

    @property
    def curve(self) -> Curve:
        """The measurements of the run."""
        return Curve(self.folder / "curve.csv")

    def keep_start(self, digest: str) -> None:
        """Keep what `check_start` compares with."""
        with atomic_write(self.folder / _START) as partial:
            partial.write_text(digest + "\n", encoding="utf-8")

    def save(self, content: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> None:
        """Write the resumable state, and the weights as a snapshot named by its step."""
        _write(self.folder / "latest.pt", dict(content))
        _write(self._snapshot(content["state"]["step"]), dict(weights))
        kept = {*self.snapshots()[-self._kept :], *self.best_snapshots(AVERAGED_SNAPSHOTS)}
        for path in set(self.snapshots()) - kept:
            path.unlink()

    def keep_before_decay(self, content: Mapping[str, Any]) -> None:
        """Keep the resumable state from which a longer run can go on."""
        _write(self.folder / "before-decay.pt", dict(content))

    def begin_after(self, state: Path) -> None:
        """Begin this run with the kept state of another; one that has begun stays as it is.

        An epoch, a warm-up and the count of milestones begin with it.
        """
        if (self.folder / "latest.pt").exists():
            return
        content: dict[str, Any] = torch.load(state, map_location="cpu", weights_only=True)
        place = content["state"]
        place |= {"epoch": place["epoch"] + 1, "epoch_step": 0, "warmup_step": place["step"]}
        place["milestone"] = 0
        _write(self.folder / "latest.pt", content)

    def keep_milestone(self, number: int, weights: Mapping[str, torch.Tensor]) -> None:
        """Keep the weights at an equal distance of the run, for good."""
        _write(self.folder / "milestones" / f"{number}.pt", dict(weights))

    def milestones(self) -> list[Path]:
        """Return the milestones, oldest first."""
        return sorted((self.folder / "milestones").glob("*.pt"))

    def load(self) -> dict[str, Any] | None:
        """Return the resumable state, or None when the run has not begun."""
        path = self.folder / "latest.pt"
        if not path.exists():
            return None
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return content

    def snapshots(self) -> list[Path]:
        """Return the snapshots, oldest first."""
        return sorted((self.folder / "snapshots").glob("*.pt"))

    def best_snapshots(self, count: int) -> list[Path]:
        """Return the snapshots nearest to the best measurement, oldest first.

        Those are the last ones where nothing was measured.
        """
        best, paths = self.curve.best_step(), self.snapshots()
        if best is None:
            return paths[-count:]
        return sorted(sorted(paths, key=lambda path: abs(int(path.stem) - best))[:count])

    def _snapshot(self, step: int) -> Path:
        return self.folder / "snapshots" / f"{step:07d}.pt"


def check_start(folder: Path, digest: str) -> None:
    """See that a run was trained with what it is to be used with now.

    Args:
        folder: of the run; one that keeps nothing to compare with passes.
        digest: of vocabularies and statistics (`TrainingStart.digest`).

    Raises:
        OtherStartError: it was trained with others.
    """
    path = folder / _START
    if path.exists() and path.read_text(encoding="utf-8").strip() != digest:
        message = (
            f"the run in {folder} was trained with other vocabularies or feature statistics; "
            "allowed: those, or another folder for a new run"
        )
        raise OtherStartError(message)


def average_snapshots(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Return the mean of the weights (BatchNorm statistics too) of several snapshots.

    Raises:
        ValueError: there is no snapshot.
    """
    if not paths:
        message = "no snapshot to average: the run has not saved any yet"
        raise ValueError(message)
    total: dict[str, torch.Tensor] = {}
    for path in paths:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        for name, value in weights.items():
            total[name] = total.get(name, 0.0) + value.double()
    return {name: (value / len(paths)).float() for name, value in total.items()}


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as partial:
        torch.save(content, partial)
