"""What changes in the course of a run, as functions of its progress from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from earvoice.training.recipe import TrainingRecipe


def learning_rate(step: int, progress: float, recipe: TrainingRecipe) -> float:
    """Linear warm-up over steps (counted from 0), a constant rate, then linear decay.

    The decay takes the last `decay_share` of the progress.
    """
    warmup = min(1.0, (step + 1) / recipe.warmup_steps)
    span = recipe.peak_learning_rate - recipe.final_learning_rate
    left = min((1.0 - min(progress, 1.0)) / recipe.decay_share, 1.0)
    return warmup * (recipe.final_learning_rate + span * left)


def lower_rate_share(progress: float, recipe: TrainingRecipe) -> float:
    """Share of the rate that the layers up to the CTC head have: linear for a third of the run."""
    first, last = recipe.lower_learning_rate
    return first + (last - first) * min(3.0 * progress, 1.0)


def decayed_rate(step: int, progress: float, peak: float, warmup_steps: int) -> float:
    """Linear warm-up over steps (counted from 0), then linear decay to nothing over progress."""
    return peak * min(1.0, (step + 1) / warmup_steps) * (1.0 - min(progress, 1.0))


def decays(progress: float, recipe: TrainingRecipe) -> bool:
    """Tell whether the learning rate falls already."""
    return progress > 1.0 - recipe.decay_share


def ctc_weight(progress: float, recipe: TrainingRecipe) -> float:
    """Weight of the CTC loss: constant for a third of the run, then falling linearly."""
    first, last = recipe.ctc_weight
    fallen = min(max((progress - 1 / 3) / (2 / 3), 0.0), 1.0)
    return first + (last - first) * fallen


def joined_share(progress: float, recipe: TrainingRecipe) -> float:
    """Share of joined examples: single sentences first, all of `joined_share` later."""
    if progress >= recipe.joined_progress:
        return recipe.joined_share
    return recipe.joined_share * progress / recipe.joined_progress


def batch_frames(*, together: bool, recipe: TrainingRecipe) -> int:
    """Frames of a batch: small while the halves are trained apart, for more steps in a minute."""
    first, last = recipe.batch_frames
    return last if together else first
