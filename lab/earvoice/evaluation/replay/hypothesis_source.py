"""Hypotheses of one input for all sessions that replay it: remembered, or searched together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from earvoice.decoder.strategies.base import BeamPlan
from earvoice.evaluation.replay.beam_search import Beam, BeamTask
from earvoice.evaluation.replay.continuation import Continuation, ContinuationMemo
from earvoice.evaluation.replay.hypothesis_file import KnownHypotheses, Request
from earvoice.evaluation.replay.revision_table import RevisionTable
from earvoice.evaluation.replay.search import Search
from earvoice.evaluation.replay.search_desk import SearchDesk


@dataclass
class SourceTally:
    """How often what was asked for was known.

    Attributes:
        asked: greedy hypotheses asked for.
        searched: of them, those that had to be searched.
        beams_asked: beams asked for.
        beams_searched: of them, those that had to be searched.
    """

    asked: int = 0
    searched: int = 0
    beams_asked: int = 0
    beams_searched: int = 0


class HypothesisSource:
    """Answers the sessions of one input.

    Args:
        table: the input's revisions.
        greedy: does greedy searches.
        beams: does beam searches.
        tally: counts.
        known: what needs no search.
    """

    def __init__(
        self,
        table: RevisionTable,
        greedy: SearchDesk[Search],
        beams: SearchDesk[BeamTask],
        tally: SourceTally,
        known: KnownHypotheses,
    ) -> None:
        self._table = table
        self._greedy = greedy
        self._beams = beams
        self._tally = tally
        self._memos: dict[tuple[int, bool], ContinuationMemo] = defaultdict(ContinuationMemo)
        self._found_beams: dict[Request, Beam] = dict(known.beams)
        for key, continuations in known.greedy.items():
            for continuation in continuations:
                self._memos[key].add(continuation)

    def known(self) -> KnownHypotheses:
        """Return everything found so far."""
        greedy = {key: memo.found for key, memo in self._memos.items()}
        return KnownHypotheses(greedy, self._found_beams)

    async def continuation(
        self, request: Request, draft: Sequence[int]
    ) -> tuple[Continuation, int]:
        """Return a greedy hypothesis, and how many of its tokens belong to the prefix.

        Args:
            request: greedy.
            draft: tokens expected after the prefix.
        """
        self._tally.asked += 1
        memo = self._memos[request.revision, request.forbid_end]
        found = memo.find(request.prefix, request.limit)
        if found is not None:
            return found
        search = await self._greedy.done((id(self), request), lambda: self._search(request, draft))
        # Of those that waited for it, the first hands it to the memo.
        found = memo.find(request.prefix, request.limit)
        if found is None:
            found = memo.add(search.result())
        return found

    async def beam(self, request: Request) -> Beam:
        """Return the hypotheses of a beam search."""
        self._tally.beams_asked += 1
        if request not in self._found_beams:
            task = await self._beams.done((id(self), request), lambda: self._beam_task(request))
            self._found_beams[request] = task.result()
        return self._found_beams[request]

    def _search(self, request: Request, draft: Sequence[int]) -> Search:
        self._tally.searched += 1
        memo = self._memos[request.revision, request.forbid_end]
        return Search(
            request.prefix,
            memo.guess(request.prefix) or draft,
            request.limit,
            request.forbid_end,
            self._table.memory(request.revision),
        )

    def _beam_task(self, request: Request) -> BeamTask:
        self._tally.beams_searched += 1
        return BeamTask(
            self._table.block(request.revision),
            self._table.memory(request.revision),
            request.prefix,
            BeamPlan(request.beam_size, request.limit, all_hypotheses=True),
            request.forbid_end,
        )
