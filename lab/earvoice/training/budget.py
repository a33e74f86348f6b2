"""How long a training run lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from earvoice.training.run_state import RunState


@dataclass(frozen=True)
class Budget:
    """How long a run lasts, and how often it saves and measures.

    Attributes:
        minutes: training time in minutes of one core, whoever else uses the machine, or by the
            clock on a GPU (`step_clock`); with `steps` given, no limit.
        wall_minutes: a limit by the clock beside it, for a machine that others use too.
        steps: number of steps instead of a time, for runs that must be repeatable exactly.
        save_every_s: training time between two resumable states.
        measure_every_s: training time between two measurements on held-out clips.
        milestones: weights kept at equal distances of the run, the last at its end.
        patience: measurements without a better one after which the run ends early.
    """

    minutes: float = 70.0
    wall_minutes: float = math.inf
    steps: int | None = None
    save_every_s: float = 100.0
    measure_every_s: float = 840.0
    milestones: int = 6
    patience: int | None = None

    def progress(self, state: RunState) -> float:
        """Return the share of the run that is done, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, state.step / self.steps)
        of_core = state.elapsed_s / (60.0 * self.minutes)
        return min(1.0, max(of_core, state.wall_s / (60.0 * self.wall_minutes)))
