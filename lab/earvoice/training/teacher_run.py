"""Training a text-to-text teacher on the corpus's own texts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from earvoice.runtime.files import atomic_write
from earvoice.training.device import (
    half_precision,
    moved,
    random_states,
    restore_random,
    step_clock,
)
from earvoice.training.loss import smoothed_cross_entropy
from earvoice.training.schedule import decayed_rate

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.training.budget import Budget
    from earvoice.training.recipe import TeacherRecipe
    from earvoice.training.teacher import TextTeacher
    from earvoice.training.text_data import TextData

_PROGRESS_STEPS = 100


class TeacherRun:
    """Trains one teacher; its file holds all that an interrupted run needs to go on."""

    def __init__(
        self,
        teacher: TextTeacher,
        text: TextData,
        recipe: TeacherRecipe,
        budget: Budget,
        path: Path,
    ) -> None:
        """Prepare a run on the teacher's device, or continue the one in `path`."""
        self._teacher, self._text, self._recipe = teacher, text, recipe
        self._budget, self._path = budget, path
        self._device = next(teacher.parameters()).device
        self._step_clock = step_clock(self._device)
        self._optimizer = torch.optim.AdamW(
            teacher.parameters(), lr=recipe.peak_learning_rate, betas=(0.9, 0.98)
        )
        self.step = 0
        self.elapsed_s = 0.0
        self._resume()

    def run(self) -> None:
        """Train until the budget is spent."""
        self._teacher.train()
        saved_s = self.elapsed_s
        while self._progress() < 1.0:
            loss = self._step()
            if self.step % _PROGRESS_STEPS == 0:
                sys.stdout.write(f"step {self.step} {100 * self._progress():.0f} % {loss:.3f}\n")
                sys.stdout.flush()
            if self.elapsed_s - saved_s >= self._budget.save_every_s:
                saved_s = self.elapsed_s
                self._save()
        self._save()

    def _progress(self) -> float:
        if self._budget.steps is not None:
            return self.step / self._budget.steps
        return self.elapsed_s / (60.0 * self._budget.minutes)

    def _step(self) -> float:
        started_s = self._step_clock()
        recipe = self._recipe
        rate = decayed_rate(
            self.step, self._progress(), recipe.peak_learning_rate, recipe.warmup_steps
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = moved(self._text.draw((recipe.seed << 32) + self.step), self._device)
        with half_precision(self._device):
            logits = self._teacher(batch.labels, batch.lengths, batch.previous_tokens)
        loss = smoothed_cross_entropy(logits, batch.next_tokens, recipe.label_smoothing)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._teacher.parameters(), recipe.gradient_norm)
        self._optimizer.step()
        self.step += 1
        value = float(loss.detach())
        self.elapsed_s += self._step_clock() - started_s
        return value

    def _save(self) -> None:
        content = {
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "teacher": self._teacher.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        } | random_states(self._device)
        with atomic_write(self._path) as partial:
            torch.save(content, partial)

    def _resume(self) -> None:
        if not self._path.exists():
            return
        content: dict[str, Any] = torch.load(self._path, map_location="cpu", weights_only=True)
        self.step, self.elapsed_s = content["step"], content["elapsed_s"]
        self._teacher.load_state_dict(content["teacher"])
        self._optimizer.load_state_dict(content["optimizer"])
        restore_random(content, self._device)
