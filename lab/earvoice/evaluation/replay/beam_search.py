"""Beam searches of the decoder service, stepped together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from earvoice.decoder.state_block import StateBlock
from earvoice.decoder.strategies.base import BeamPlan, Opening, Progress
from earvoice.decoder.strategies.search import Run, SearchStrategy
from earvoice.evaluation.replay.continuation import Continuation
from earvoice.evaluation.replay.parallel_search import Memory, ParallelSearch
from earvoice.models.vocabulary import EOS

MOST_BEAMS = 24


@dataclass(frozen=True)
class Beam:
    """A finished beam search.

    Attributes:
        best: the best hypothesis.
        alternatives: new tokens of every hypothesis, best first, ends of sentence excluded.
        step_count: steps that the search took.
    """

    best: Continuation
    alternatives: tuple[tuple[int, ...], ...]
    step_count: int


@dataclass(eq=False)
class BeamTask:
    """A beam search that is wanted.

    Attributes:
        block: the states.
        memory: a decoder's keys and values of them.
        prefix: forced.
        plan: how to search.
        forbid_end: never choose the end of sentence.
    """

    block: StateBlock
    memory: Memory
    prefix: tuple[int, ...]
    plan: BeamPlan
    forbid_end: bool
    found: Beam | None = field(default=None, init=False)

    def result(self) -> Beam:
        """Return what was found.

        Raises:
            RuntimeError: the search is not over.
        """
        if self.found is None:
            raise RuntimeError("the beam search is not over")
        return self.found


class BeamSearch:
    """Searches on one model.

    Args:
        strategy: the service's.
        search: reads the best hypothesis once more, for the attention of all layers and heads.
        opening: start token and language tokens.
    """

    def __init__(
        self, strategy: SearchStrategy, search: ParallelSearch, opening: Sequence[int]
    ) -> None:
        self._strategy = strategy
        self._search = search
        self._opening = tuple(opening)

    def run(self, tasks: Sequence[BeamTask]) -> None:
        """Search until all are over."""
        for start in range(0, len(tasks), MOST_BEAMS):
            self._run_batch(tasks[start : start + MOST_BEAMS])

    def _run_batch(self, tasks: Sequence[BeamTask]) -> None:
        running: list[tuple[BeamTask, Run]] = []
        for task in tasks:
            forced = (*self._opening, *task.prefix)
            opening = Opening(forced, (), 1, task.forbid_end, beam=task.plan)
            run, progress = self._strategy.begin(task.block, opening)
            if not self._note(task, progress, 0):
                running.append((task, run))
        step_count = 0
        while running:
            step_count += 1
            progresses = self._strategy.step([run for _, run in running])
            running = [
                item
                for item, progress in zip(running, progresses, strict=True)
                if not self._note(item[0], progress, step_count)
            ]

    def _note(self, task: BeamTask, progress: Progress, step_count: int) -> bool:
        """Keep a search's result; False while there is none."""
        if not progress.beam:
            return False
        hypotheses = [tuple(choice.token for choice in item.choices) for item in progress.beam]
        best = self._search.read(task.prefix, hypotheses[0], task.memory)
        alternatives = tuple(tokens[:-1] if tokens[-1] == EOS else tokens for tokens in hypotheses)
        task.found = Beam(best, alternatives, step_count)
        return True
