"""The training loop: resumable at any moment, bounded by computing time or steps."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from earvoice.training.bucketing import make_batches
from earvoice.training.device import moved, random_states, restore_random, step_clock
from earvoice.training.example import plan_epoch
from earvoice.training.halves import parameter_groups
from earvoice.training.objective import apart, together
from earvoice.training.peers import NoPeers
from earvoice.training.run_state import RunState
from earvoice.training.schedule import (
    batch_frames,
    decays,
    joined_share,
    learning_rate,
    lower_rate_share,
)
from earvoice.training.truncation import truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from earvoice.models.translation import SightMask, SpeechTranslationModel
    from earvoice.training.budget import Budget
    from earvoice.training.dataset import TrainingData
    from earvoice.training.example import Example
    from earvoice.training.metric import Score
    from earvoice.training.objective import Losses
    from earvoice.training.peers import Peers
    from earvoice.training.recipe import TrainingRecipe
    from earvoice.training.run_state import RunFolder
    from earvoice.training.text_data import TextData

    Measure = Callable[[SpeechTranslationModel], list[Score]]


_PROGRESS_STEPS = 50


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
        peers: Peers | None = None,
        mask: SightMask | None = None,
    ) -> None:
        """Prepare a run, or continue the one that the folder holds.

        The run computes on the device that the network is on.

        A mask limits what of the source each token is written with, once the halves are together.
        """
        self.network, self._data, self._text = network, data, text
        self._recipe, self._budget = recipe, budget
        self._folder, self._measure = folder, measure
        self._peers = peers or NoPeers()
        self._mask = mask
        self._device = next(network.parameters()).device
        self._step_clock = step_clock(self._device)
        self._pool = data.pool()
        self._optimizer = torch.optim.AdamW(
            parameter_groups(network),
            lr=recipe.peak_learning_rate,
            betas=(0.9, 0.98),
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.state = RunState(together=recipe.together_progress == 0.0)
        self._means = RunningMeans()
        self._saved_s = self._clock_s = 0.0
        self._tired = False
        self._resume()

    def run(self) -> None:
        """Train until the budget or the patience is spent; the last state is saved."""
        self.network.train()
        self._saved_s = self.state.elapsed_s
        self._clock_s = time.monotonic()
        self._lose_patience()
        while not self._ended():
            for examples in self._batches()[self.state.epoch_step :]:
                self._step(examples)
                ready = not self.state.together and self._reads_well()
                if ready:
                    self._begin_epoch(together=True)
                self._measure_and_save_when_due()
                if ready or self._ended():
                    break
            else:
                self._begin_epoch(together=self.state.together)
        self._save()
        self._report()

    def _ended(self) -> bool:
        return self._tired or self._budget.progress(self.state) >= 1.0

    def _measure_and_save_when_due(self) -> None:
        elapsed_s = self.state.elapsed_s
        self._keep_before_decay_when_due()
        milestone = int(self._budget.progress(self.state) * self._budget.milestones)
        if milestone > self.state.milestone:
            self.state.milestone = milestone
            if self._peers.rank == 0:
                self._folder.keep_milestone(milestone, self.network.state_dict())
        if elapsed_s - self.state.measured_s >= self._budget.measure_every_s:
            self.state.measured_s = elapsed_s
            self._report()
        if elapsed_s - self._saved_s >= self._budget.save_every_s:
            self._saved_s = elapsed_s
            self._save()

    def _keep_before_decay_when_due(self) -> None:
        due = decays(self._budget.progress(self.state), self._recipe)
        if due and not self.state.decayed and self._recipe.decay_share < 1.0:
            if self._peers.rank == 0:
                self._folder.keep_before_decay(self._content())
            self.state.decayed = True

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
        if self.state.together:
            examples = truncate(examples, pool, epoch, self._recipe)
        frames = batch_frames(together=self.state.together, recipe=self._recipe)
        batches = make_batches(examples, frames, self._recipe.seed + epoch)
        peers = self._peers
        return batches[peers.rank : len(batches) // peers.count * peers.count : peers.count]

    def _step(self, examples: Sequence[Example]) -> None:
        started_s = self._step_clock()
        progress = self._budget.progress(self.state)
        warm_steps = self.state.step - self.state.warmup_step
        rate = learning_rate(warm_steps, progress, self._recipe)
        lower, upper = self._optimizer.param_groups
        lower["lr"] = rate * lower_rate_share(progress, self._recipe)
        upper["lr"] = rate
        losses = self._losses(examples, progress)
        self._optimizer.zero_grad()
        torch.autograd.backward(losses.total)
        self._peers.average_gradients(self.network.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._recipe.gradient_norm)
        if torch.isfinite(norm):
            self._optimizer.step()
        self._means.add(speech=float(losses.speech), text=float(losses.text), ctc=float(losses.ctc))
        self.state.step += 1
        self.state.epoch_step += 1
        (ctc,) = self._peers.mean([float(losses.ctc)])
        self.state.ctc += 0.02 * (ctc - self.state.ctc)
        self._count_time(started_s)
        if self.state.step % _PROGRESS_STEPS == 0:
            self._print_progress()

    def _count_time(self, started_s: float) -> None:
        """Count a step's time; all processes count the slowest one's, to decide alike."""
        elapsed_s = self.state.elapsed_s + self._step_clock() - started_s
        # Measuring and saving count here, so that a run ends when the clock says so.
        now_s = time.monotonic()
        wall_s = self.state.wall_s + now_s - self._clock_s
        self._clock_s = now_s
        self.state.elapsed_s, self.state.wall_s = self._peers.largest([elapsed_s, wall_s])

    def _losses(self, examples: Sequence[Example], progress: float) -> Losses:
        recipe = self._recipe
        turn, rest = divmod(self.state.step, recipe.text.every_steps)
        place = turn * self._peers.count + self._peers.rank
        text = None
        if rest == 0:
            text = moved(self._text.draw((recipe.seed << 32) + place), self._device)
        heard = recipe.augmentation if self.state.together else recipe.gentle_augmentation
        speech = moved(self._data.assemble(examples, heard), self._device)
        if not self.state.together:
            return apart(self.network, speech, text, recipe)
        return together(self.network, speech, text, progress, recipe, self._mask)

    def _reads_well(self) -> bool:
        """Tell whether the lower layers read speech well enough to translate what they read."""
        late = self._budget.progress(self.state) >= self._recipe.together_progress
        return late or self.state.ctc < self._recipe.together_ctc

    def _report(self) -> None:
        """Measure on held-out clips and add to the curve."""
        if self._peers.rank == 0:
            self.network.eval()
            scores = self._measure(self.network)
            self.network.train()
            self._folder.curve.add(self.state.step, self.state.elapsed_s, scores)
            sys.stdout.writelines(f"  {score}\n" for score in scores)
            sys.stdout.flush()
        self._lose_patience()

    def _lose_patience(self) -> None:
        """See whether as many measurements as allowed have brought nothing."""
        if self._budget.patience is not None:
            stale = self._folder.curve.since_best() if self._peers.rank == 0 else 0
            self._tired = self._peers.largest([stale])[0] >= self._budget.patience

    def _save(self) -> None:
        if self._peers.rank != 0:
            return
        content = self._content()
        self._folder.save(content, content["network"])

    def _content(self) -> dict[str, Any]:
        """Return all that a run needs to go on."""
        return {
            "state": asdict(self.state),
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        } | random_states(self._device)

    def _resume(self) -> None:
        content = self._folder.load()
        if content is None:
            return
        self.state = RunState(**content["state"])
        self.network.load_state_dict(content["network"])
        self._optimizer.load_state_dict(content["optimizer"])
        if self._peers.rank == 0:
            restore_random(content, self._device)

    def _print_progress(self) -> None:
        if self._peers.rank != 0:
            return
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
