"""Training a text-to-text teacher on the corpus's own texts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import torch

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
        """Prepare a run, or continue the one in `path`."""
        self._teacher, self._text, self._recipe = teacher, text, recipe
        self._budget, self._path = budget, path
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
        started_s = time.process_time()
        recipe = self._recipe
        rate = decayed_rate(
            self.step, self._progress(), recipe.peak_learning_rate, recipe.warmup_steps
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = self._text.draw((recipe.seed << 32) + self.step)
        logits = self._teacher(batch.labels, batch.lengths, batch.previous_tokens)
        loss = smoothed_cross_entropy(logits, batch.next_tokens, recipe.label_smoothing)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._teacher.parameters(), recipe.gradient_norm)
        self._optimizer.step()
        self.step += 1
        self.elapsed_s += time.process_time() - started_s
        return float(loss.detach())

    def _save(self) -> None:
        partial = self._path.with_suffix(".part")
        content = {
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "teacher": self._teacher.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save(content, partial)
        partial.replace(self._path)

    def _resume(self) -> None:
        if not self._path.exists():
            return
        content: dict[str, Any] = torch.load(self._path, weights_only=True)
        self.step, self.elapsed_s = content["step"], content["elapsed_s"]
        self._teacher.load_state_dict(content["teacher"])
        self._optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"])
