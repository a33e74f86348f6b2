"""The training loop: resumable at any moment, bounded by computing time or steps."""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from earvoice.training.bucketing import make_batches
from earvoice.training.example import plan_epoch
from earvoice.training.halves import parameter_groups
from earvoice.training.objective import apart, together
from earvoice.training.run_state import RunState
from earvoice.training.schedule import batch_frames, joined_share, learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from earvoice.models.translation import SpeechTranslationModel
    from earvoice.training.dataset import TrainingData
    from earvoice.training.example import Example
    from earvoice.training.metric import Score
    from earvoice.training.objective import Losses
    from earvoice.training.recipe import TrainingRecipe
    from earvoice.training.run_state import RunFolder
    from earvoice.training.text_data import TextData

    Measure = Callable[[SpeechTranslationModel], list[Score]]


_PROGRESS_STEPS = 50


@dataclass(frozen=True)
class Budget:
    """How long a run lasts, and how often it saves and measures.

    Attributes:
        minutes: training time in minutes of one core, whoever else uses the machine; with
            `steps` given, no limit.
        wall_minutes: a limit by the clock beside it, for a machine that others use too.
        steps: number of steps instead of a time, for runs that must be repeatable exactly.
        save_every_s: training time between two resumable states.
        measure_every_s: training time between two measurements on held-out clips.
        milestones: weights kept at equal distances of the run, the last at its end.
    """

    minutes: float = 70.0
    wall_minutes: float = 240.0
    steps: int | None = None
    save_every_s: float = 100.0
    measure_every_s: float = 480.0
    milestones: int = 6

    def progress(self, state: RunState) -> float:
        """Return the share of the run that is done, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, state.step / self.steps)
        of_core = state.elapsed_s / (60.0 * self.minutes)
        return min(1.0, max(of_core, state.wall_s / (60.0 * self.wall_minutes)))


class Trainer:
    """Trains one network in one run folder, in two phases.

    First the halves apart: the lower layers learn to read speech by CTC, the upper layers and
    the decoder to translate transcripts. Compressed speech means nothing before the CTC head
    can read; once it can, the whole network is trained together.
    """

    def __init__(
        self,
        network: SpeechTranslationModel,
        data: TrainingData,
        text: TextData,
        recipe: TrainingRecipe,
        budget: Budget,
        folder: RunFolder,
        measure: Measure,
    ) -> None:
        """Prepare a run, or continue the one that the folder holds."""
        self._network, self._data, self._text = network, data, text
        self._recipe, self._budget = recipe, budget
        self._folder, self._measure = folder, measure
        self._pool = data.pool()
        self._optimizer = torch.optim.AdamW(
            parameter_groups(network, recipe.lower_learning_rate),
            lr=recipe.peak_learning_rate,
            betas=(0.9, 0.98),
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.state = RunState(together=recipe.together_progress == 0.0)
        self._means = RunningMeans()
        self._saved_s = self._measured_s = self._clock_s = 0.0
        self._resume()

    def run(self) -> None:
        """Train until the budget is spent; the last state and snapshot are saved."""
        self._network.train()
        self._saved_s = self._measured_s = self.state.elapsed_s
        self._clock_s = time.monotonic()
        while self._budget.progress(self.state) < 1.0:
            for examples in self._batches()[self.state.epoch_step :]:
                self._step(examples)
                ready = not self.state.together and self._reads_well()
                if ready:
                    self._begin_epoch(together=True)
                self._measure_and_save_when_due()
                if ready or self._budget.progress(self.state) >= 1.0:
                    break
            else:
                self._begin_epoch(together=self.state.together)
        self._save()
        self._report()

    def _measure_and_save_when_due(self) -> None:
        elapsed_s = self.state.elapsed_s
        milestone = int(self._budget.progress(self.state) * self._budget.milestones)
        if milestone > self.state.milestone:
            self.state.milestone = milestone
            self._folder.keep_milestone(milestone, self._network.state_dict())
        if elapsed_s - self._measured_s >= self._budget.measure_every_s:
            self._measured_s = elapsed_s
            self._report()
        if elapsed_s - self._saved_s >= self._budget.save_every_s:
            self._saved_s = elapsed_s
            self._save()

    def _begin_epoch(self, *, together: bool) -> None:
        self.state.together = together
        self.state.epoch += 1
        self.state.epoch_step = 0

    def _batches(self) -> list[list[Example]]:
        """Plan the epoch in progress; an interrupted one is planned as it was."""
        if self.state.epoch_step == 0:
            progress = self._budget.progress(self.state)
            share = joined_share(progress, self._recipe) if self.state.together else 0.0
            self.state.epoch_joined_share = share
        share, epoch = self.state.epoch_joined_share, self.state.epoch
        pool = self._pool
        if not self.state.together:
            pool = [clip for clip in pool if clip.frames <= self._recipe.apart_frames]
        examples = plan_epoch(pool, epoch, share, self._recipe)
        frames = batch_frames(together=self.state.together, recipe=self._recipe)
        return make_batches(examples, frames, self._recipe.seed + epoch)

    def _step(self, examples: Sequence[Example]) -> None:
        started = time.process_time()
        progress = self._budget.progress(self.state)
        rate = learning_rate(self.state.step, progress, self._recipe)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["share"]
        losses = self._losses(examples, progress)
        self._optimizer.zero_grad()
        torch.autograd.backward(losses.total)
        norm = torch.nn.utils.clip_grad_norm_(
            self._network.parameters(), self._recipe.gradient_norm
        )
        if torch.isfinite(norm):
            self._optimizer.step()
        self._means.add(speech=float(losses.speech), text=float(losses.text), ctc=float(losses.ctc))
        self.state.step += 1
        self.state.epoch_step += 1
        self.state.ctc += 0.02 * (float(losses.ctc) - self.state.ctc)
        self.state.elapsed_s += time.process_time() - started
        # Measuring and saving count here, so that a run ends when the clock says so.
        now_s = time.monotonic()
        self.state.wall_s += now_s - self._clock_s
        self._clock_s = now_s
        if self.state.step % _PROGRESS_STEPS == 0:
            self._print_progress()

    def _losses(self, examples: Sequence[Example], progress: float) -> Losses:
        recipe = self._recipe
        turn, rest = divmod(self.state.step, recipe.text.every_steps)
        text = self._text.draw((recipe.seed << 32) + turn) if rest == 0 else None
        if not self.state.together:
            speech = self._data.assemble(examples, recipe.gentle_augmentation)
            return apart(self._network, speech, text, recipe)
        speech = self._data.assemble(examples, recipe.augmentation)
        return together(self._network, speech, text, progress, recipe)

    def _reads_well(self) -> bool:
        """Tell whether the lower layers read speech well enough to translate what they read."""
        late = self._budget.progress(self.state) >= self._recipe.together_progress
        return late or self.state.ctc < self._recipe.together_ctc

    def _report(self) -> None:
        """Measure on held-out clips and add to the curve."""
        self._network.eval()
        scores = self._measure(self._network)
        self._network.train()
        new = not self._folder.curve.exists()
        with self._folder.curve.open("a", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            if new:
                writer.writerow(("step", "elapsed_s", "set", "word_error_rate", "bleu"))
            for score in scores:
                sys.stdout.write(f"  {score}\n")
                row = (self.state.step, round(self.state.elapsed_s), score.name)
                writer.writerow((*row, f"{score.word_error_rate:.4f}", score.bleu))
        sys.stdout.flush()

    def _save(self) -> None:
        weights = self._network.state_dict()
        content: dict[str, Any] = {
            "state": asdict(self.state),
            "network": weights,
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        self._folder.save(content, weights)

    def _resume(self) -> None:
        content = self._folder.load()
        if content is None:
            return
        self.state = RunState(**content["state"])
        self._network.load_state_dict(content["network"])
        self._optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"])

    def _print_progress(self) -> None:
        state = self.state
        phase = "together" if state.together else "apart"
        sys.stdout.write(
            f"step {state.step} epoch {state.epoch} {state.elapsed_s / 60:.1f} min "
            f"{100 * self._budget.progress(state):.0f} % {phase} {self._means}\n"
        )
        sys.stdout.flush()
        self._means = RunningMeans()


class RunningMeans:
    """Means of the losses seen since the last line of progress; zeros do not count."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._values: dict[str, list[float]] = {}

    def add(self, **losses: float) -> None:
        """Add the losses of one step."""
        for name, loss in losses.items():
            if loss:
                self._values.setdefault(name, []).append(loss)

    def __str__(self) -> str:
        """One line for people."""
        return " ".join(f"{n} {sum(v) / len(v):.3f}" for n, v in self._values.items())
