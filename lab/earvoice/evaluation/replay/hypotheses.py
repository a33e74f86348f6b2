"""What greedy search puts behind a forced prefix, remembered so that it is never searched twice.

Greedy search has no memory but its tokens: if it puts ``h`` behind the prefix ``P``, then it puts
``h[i:]`` behind ``P + h[:i]``. So one search answers for every prefix on its way.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file

from earvoice.evaluation.recording import RecordingError
from earvoice.evaluation.replay.revisions import RevisionTable
from earvoice.evaluation.replay.search import Continuation, HypothesisRequest, SearchTask
from earvoice.runtime.files import atomic_write


class ContinuationMemo:
    """The continuations found on one revision, for one rule about the end of sentence."""

    def __init__(self) -> None:
        # By every prefix on a continuation's way: the continuation, and its tokens before there.
        self._ways: dict[tuple[int, ...], tuple[Continuation, int]] = {}
        self._found: list[Continuation] = []

    @property
    def found(self) -> Sequence[Continuation]:
        return self._found

    def find(self, prefix: tuple[int, ...], count: int) -> tuple[Continuation, int] | None:
        """Return a continuation that knows what follows a prefix.

        Args:
            prefix: forced.
            count: how many tokens must be known, unless the sentence ends before.

        Returns:
            It, and how many of its tokens belong to the prefix; None if there is none.
        """
        found = self._ways.get(prefix)
        if found is None:
            return None
        continuation, passed = found
        enough = continuation.ended or len(continuation.tokens) - passed >= count
        return found if enough else None

    def add(self, continuation: Continuation) -> tuple[Continuation, int]:
        """Remember a continuation, and return it as `find` does for its own prefix."""
        self._found.append(continuation)
        open_count = len(continuation.tokens) - continuation.ended
        for passed in range(open_count + 1):
            way = continuation.prefix + continuation.tokens[:passed]
            self._ways[way] = (continuation, passed)
        return continuation, 0

    def guess(self, prefix: tuple[int, ...]) -> tuple[int, ...]:
        """Return what might follow a prefix: what follows in the hypothesis that is most like it.

        It is verified, not trusted.
        """
        best: tuple[int, ...] = ()
        most = -1
        for continuation in self._found:
            path = continuation.prefix + continuation.tokens
            shared = _shared_count(path, prefix)
            if shared > most:
                best, most = path[len(prefix) :], shared
        return best


def _shared_count(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))


HYPOTHESES_FOLDER = "hypotheses"
_KEY = "hypotheses"


@dataclass(frozen=True)
class KnownHypotheses:
    """Everything found for an input in one target language.

    Attributes:
        greedy: by revision and whether the end of sentence was forbidden.
    """

    greedy: Mapping[tuple[int, bool], Sequence[Continuation]]
    beams: Mapping[HypothesisRequest, Continuation]


def hypothesis_path(recording: Path, index: int, language: str) -> Path:
    return recording / HYPOTHESES_FOLDER / f"{index:04d}.{language}.safetensors"


def write_hypotheses(path: Path, known: KnownHypotheses) -> None:
    weights: dict[str, torch.Tensor] = {}
    greedy = [
        {"revision": revision, "forbid_end": forbid_end, **_describe(continuation, weights)}
        for (revision, forbid_end), continuations in known.greedy.items()
        for continuation in continuations
    ]
    beams = [
        {
            "request": asdict(request),
            "best": _describe(beam, weights),
            "alternatives": beam.alternatives,
            "step_count": beam.step_count,
        }
        for request, beam in known.beams.items()
    ]
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as partial:
        save_file(weights, partial, {_KEY: json.dumps({"greedy": greedy, "beams": beams})})


def read_hypotheses(path: Path) -> KnownHypotheses:
    """Return what `write_hypotheses` wrote; nothing if nothing was written."""
    if not path.exists():
        return KnownHypotheses({}, {})
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            content = json.loads(file.metadata()[_KEY])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        greedy: dict[tuple[int, bool], list[Continuation]] = {}
        for line in content["greedy"]:
            key = (line["revision"], line["forbid_end"])
            greedy.setdefault(key, []).append(_continuation(line, weights))
        beams = {
            _request(line["request"]): replace(
                _continuation(line["best"], weights),
                alternatives=tuple(map(tuple, line["alternatives"])),
                step_count=line["step_count"],
            )
            for line in content["beams"]
        }
    except (safetensors.SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    return KnownHypotheses(greedy, beams)


def _describe(continuation: Continuation, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    name = str(len(weights))
    weights[name] = continuation.weights.contiguous()
    return {
        "prefix": continuation.prefix,
        "tokens": continuation.tokens,
        "ended": continuation.ended,
        "log_probabilities": continuation.log_probabilities,
        "weights": name,
    }


def _continuation(line: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Continuation:
    return Continuation(
        tuple(line["prefix"]),
        tuple(line["tokens"]),
        line["ended"],
        tuple(line["log_probabilities"]),
        weights[line["weights"]],
    )


def _request(fields: Mapping[str, Any]) -> HypothesisRequest:
    return HypothesisRequest(**{**fields, "prefix": tuple(fields["prefix"])})


class SearchDesk:
    """Collects tasks until every session waits, then does them all. Belongs to one event loop."""

    def __init__(self, work: Callable[[Sequence[SearchTask]], None]) -> None:
        self._work = work
        self._waiting: dict[Hashable, tuple[SearchTask, asyncio.Future[SearchTask]]] = {}

    async def done(self, key: Hashable, make: Callable[[], SearchTask]) -> SearchTask:
        """Return a task that has been done; who asks for one that waits already waits with it."""
        if key not in self._waiting:
            loop = asyncio.get_running_loop()
            if not self._waiting:
                loop.call_soon(self._work_when_all_wait, 0)
            self._waiting[key] = (make(), loop.create_future())
        # Shielded: a session that is cancelled must not cancel those that wait with it.
        return await asyncio.shield(self._waiting[key][1])

    def _work_when_all_wait(self, asked_before: int) -> None:
        """Work once a round of the event loop has brought no new task."""
        if len(self._waiting) > asked_before:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._work_when_all_wait, len(self._waiting))
            return
        waiting, self._waiting = self._waiting, {}
        try:
            self._work([task for task, _ in waiting.values()])
        except Exception as error:  # noqa: BLE001 - handed on to all that wait
            for _, done in waiting.values():
                done.set_exception(error)
        else:
            for task, done in waiting.values():
                done.set_result(task)


class HypothesisSource:
    """Answers the sessions of one input.

    Args:
        tally: counts hypotheses ``asked`` for, those of them ``searched``, and likewise
            ``beams asked`` and ``beams searched``.
    """

    def __init__(
        self, table: RevisionTable, desk: SearchDesk, tally: Counter[str], known: KnownHypotheses
    ) -> None:
        self.table = table
        self._desk = desk
        self._tally = tally
        self._memos: dict[tuple[int, bool], ContinuationMemo] = defaultdict(ContinuationMemo)
        self._beams: dict[HypothesisRequest, Continuation] = dict(known.beams)
        for key, continuations in known.greedy.items():
            for continuation in continuations:
                self._memos[key].add(continuation)

    def known(self) -> KnownHypotheses:
        return KnownHypotheses({key: memo.found for key, memo in self._memos.items()}, self._beams)

    async def continuation(
        self, request: HypothesisRequest, draft: Sequence[int]
    ) -> tuple[Continuation, int]:
        """Return a greedy hypothesis, and how many of its tokens belong to the prefix."""
        self._tally["asked"] += 1
        memo = self._memos[request.revision, request.forbid_end]
        found = memo.find(request.prefix, request.limit)
        if found is not None:
            return found

        def make() -> SearchTask:
            self._tally["searched"] += 1
            guess = memo.guess(request.prefix) or draft
            return SearchTask(request, self.table.block(request.revision), guess)

        search = await self._desk.done((id(self), request), make)
        # Of those that waited for it, the first hands it to the memo.
        return memo.find(request.prefix, request.limit) or memo.add(search.result())

    async def beam(self, request: HypothesisRequest) -> Continuation:
        self._tally["beams asked"] += 1
        if request not in self._beams:

            def make() -> SearchTask:
                self._tally["beams searched"] += 1
                return SearchTask(request, self.table.block(request.revision))

            task = await self._desk.done((id(self), request), make)
            self._beams[request] = task.result()
        return self._beams[request]
