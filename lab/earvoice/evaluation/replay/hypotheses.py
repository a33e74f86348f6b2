"""One recorded input, opened: its revisions, and the decoder's hypotheses on them.

Greedy search has no state but its tokens: if it continues the prefix ``P`` with ``h``, it continues
``P + h[:i]`` with ``h[i:]``. So one search answers for every prefix on its way; results are
memoised and never searched twice. New ones come from the decoder service's own search.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch.nn.functional import scaled_dot_product_attention

from earvoice.decoder.search import Run, SearchStrategy
from earvoice.decoder.strategy import (
    BeamPlan,
    Hypothesis,
    PredictedToken,
    Progress,
    Prompt,
    StateBlock,
    TokenTable,
    least_end_probability,
)
from earvoice.evaluation.recording import RecordedInput, Recording, RecordingError, Revision
from earvoice.evaluation.replay.setting import AttentionView
from earvoice.models.decoding import CachedDecoder, DecoderCache, decoding_layers
from earvoice.models.vocabulary import EOS
from earvoice.policies.base import Token, longest_common_prefix_tokens
from earvoice.policy.backend import Encoded
from earvoice.policy.backends.replica_session import evidence_of
from earvoice.policy.evidence import Evidence
from earvoice.policy.timeline import HopTimings
from earvoice.runtime.files import atomic_write

MOST_TASKS = 64
"""Searches that are stepped together; on a CPU more would gain nothing."""


@dataclass(frozen=True)
class AttentionChoice:
    """Which cross-attention a policy is shown: a layer and heads, from 1; no heads means all."""

    layer: int
    heads: tuple[int, ...] = ()
    view: AttentionView = "one-layer"

    def rows(self, weights: torch.Tensor) -> torch.Tensor:
        """[layers, heads, n, S] weights → [n, S], or [n, S + 1] with the last state kept."""
        if self.view == "mean-over-layers":
            return self._mean_of_heads(weights).mean(0)
        rows = self._mean_of_heads(weights[self.layer - 1 : self.layer])[0]
        if self.view == "with-the-last-state":
            return torch.nn.functional.pad(rows, (0, 1))
        return rows

    def _mean_of_heads(self, weights: torch.Tensor) -> torch.Tensor:
        chosen = weights[:, [head - 1 for head in self.heads]] if self.heads else weights
        return chosen.mean(1)


@dataclass(frozen=True)
class HypothesisRequest:
    """A session's request for a hypothesis.

    Attributes:
        limit: most tokens after the prefix, end of sentence included.
        beam_size: 1 is greedy.
    """

    revision: int
    prefix: tuple[int, ...]
    limit: int
    forbid_end: bool
    beam_size: int = 1


@dataclass(frozen=True)
class Continuation:
    """A hypothesis after its prefix, by greedy search or as the best of a beam.

    Attributes:
        tokens: the chosen tokens, including the end of sentence if it was reached.
        ended: whether the last of them is the end of sentence.
        weights: [layers, heads, len(tokens), S] float32, cross-attention of the steps that predict
            them.
        alternatives: for a beam, the new tokens of every hypothesis, best first, without ends.
        source: tokens of the text that is translated, if any, and their log-probabilities.
    """

    prefix: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    log_probabilities: tuple[float, ...]
    weights: torch.Tensor
    alternatives: tuple[tuple[int, ...], ...] = ()
    step_count: int = 0
    source: tuple[tuple[int, float], ...] = ()
    _shown: dict[AttentionChoice, list[Token]] = field(default_factory=dict, repr=False)

    def shown(self, choice: AttentionChoice, table: TokenTable) -> list[Token]:
        if choice not in self._shown:
            rows = choice.rows(self.weights).tolist()
            self._shown[choice] = [
                Token(token, table.texts[token], table.starts_word[token], row, log_probability)
                for token, row, log_probability in zip(
                    self.tokens, rows, self.log_probabilities, strict=True
                )
            ]
        return self._shown[choice]

    def shown_source(self, table: TokenTable) -> list[Token]:
        return [
            Token(token, table.texts[token], table.starts_word[token], (), log_probability)
            for token, log_probability in self.source
        ]


@dataclass(eq=False)
class SearchTask:
    """A hypothesis to be searched for; greedy search verifies the guess first."""

    request: HypothesisRequest
    block: StateBlock
    guess: Sequence[int] = ()
    found: Continuation | None = field(default=None, init=False)
    _choices: list[PredictedToken] = field(default_factory=list, init=False)
    _beam: list[Hypothesis] = field(default_factory=list, init=False)
    _step_count: int = field(default=-1, init=False)
    _source: list[PredictedToken] = field(default_factory=list, init=False)

    def prompt(self, forced: tuple[int, ...], least_empty: float) -> Prompt:
        """The prompt; the model writes nothing where that is at least `least_empty` probable."""
        wanted = self.request
        plan, guess = None, tuple(self.guess[: wanted.limit - 1])
        if wanted.beam_size > 1:
            plan, guess = BeamPlan(wanted.beam_size, wanted.limit, all_hypotheses=True), ()
        tokens = (*forced, *wanted.prefix)
        least = least_end_probability(least_empty, self.block, wanted.prefix)
        return Prompt(tokens, guess, 1, wanted.forbid_end, beam=plan, least_end_probability=least)

    def is_over_with(self, progress: Progress) -> bool:
        """Take the result of a pass or a step; return whether the hypothesis is complete."""
        self._step_count += 1
        self._choices += progress.tokens
        self._source = self._source or progress.source
        self._beam = progress.beam
        if self.request.beam_size > 1:
            return bool(self._beam)
        return self._choices[-1].token == EOS or len(self._choices) >= self.request.limit

    def finish(self, weights: torch.Tensor) -> None:
        """Keep the hypothesis, with the attention [layers, heads, n, S] of its tokens."""
        hypotheses = [tuple(choice.token for choice in item.tokens) for item in self._beam]
        tokens = tuple(choice.token for choice in self.best)
        self.found = Continuation(
            self.request.prefix,
            tokens,
            tokens[-1] == EOS,
            tuple(choice.log_probability for choice in self.best),
            weights,
            tuple(own[:-1] if own[-1] == EOS else own for own in hypotheses),
            self._step_count if self._beam else 0,
            tuple((choice.token, choice.log_probability) for choice in self._source),
        )

    @property
    def best(self) -> list[PredictedToken]:
        return self._beam[0].tokens if self._beam else self._choices

    def result(self) -> Continuation:
        if self.found is None:
            raise RuntimeError("the search is not over")
        return self.found


def search(
    strategy: SearchStrategy,
    decoder: CachedDecoder,
    forced: tuple[int, ...],
    tasks: Sequence[SearchTask],
) -> None:
    """Do tasks as the decoder service does, each after the forced tokens."""
    for start in range(0, len(tasks), MOST_TASKS):
        batch = tasks[start : start + MOST_TASKS]
        running: list[tuple[SearchTask, Run]] = []
        for task in batch:
            prompt = task.prompt(forced, decoder.config.decoder.least_empty_probability)
            run, progress = strategy.begin(task.block, prompt)
            if not task.is_over_with(progress):
                running.append((task, run))
        while running:
            progresses = strategy.step([run for _, run in running])
            running = [
                item
                for item, progress in zip(running, progresses, strict=True)
                if not item[0].is_over_with(progress)
            ]
        for task in batch:
            read = [*forced, *task.request.prefix]
            tokens = [*read, *(choice.token for choice in task.best[:-1])]
            weights = _attention(decoder, strategy.memory_of(task.block, read), tokens)
            task.finish(weights[:, :, len(read) - 1 :].clone())


@torch.inference_mode()
def _attention(decoder: CachedDecoder, cache: DecoderCache, tokens: Sequence[int]) -> torch.Tensor:
    """Read tokens once more: cross-attention of all layers and heads, [layers, heads, n, S].

    The service's search returns it for one layer only.
    """
    ids, count = torch.tensor(tokens), len(tokens)
    hidden = decoder.embed(ids, decoder.positions_up_to(count))
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    weights: list[torch.Tensor] = []
    for index, layer in enumerate(decoding_layers(cache.stack)):
        query, keys, values = layer.project_self(hidden)
        own = scaled_dot_product_attention(query, keys, values, attn_mask=seen)
        hidden = layer.add_self(hidden, own.transpose(0, 1).flatten(1))
        queries = layer.project_cross(hidden)
        keys = cache.cross_keys[index].transpose(-1, -2)
        weights.append(((queries * queries.shape[-1] ** -0.5) @ keys).float().softmax(-1))
        attended = weights[-1] @ cache.cross_values[index]
        hidden = layer.add_cross(hidden, attended.transpose(0, 1).flatten(1))
        hidden = layer.add_feed_forward(hidden)
    return cache.over_states(torch.stack(weights))


class ContinuationMemo:
    """The continuations found on one revision, for one rule about the end of sentence."""

    def __init__(self) -> None:
        # For every prefix on a continuation's way: the continuation, and how many of its tokens
        # belong to that prefix.
        self._ways: dict[tuple[int, ...], tuple[Continuation, int]] = {}
        self._found: list[Continuation] = []

    @property
    def found(self) -> Sequence[Continuation]:
        return self._found

    def find(self, prefix: tuple[int, ...], count: int) -> tuple[Continuation, int] | None:
        """Return a continuation that covers what follows a prefix.

        Args:
            prefix: the forced prefix.
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
        """Store a continuation, and return it as `find` does for its own prefix."""
        self._found.append(continuation)
        open_count = len(continuation.tokens) - continuation.ended
        if not continuation.prefix and [token for token, _ in continuation.source] == [EOS]:
            # The source text was empty; with a prefix it would be another text.
            open_count = 0
        for passed in range(open_count + 1):
            way = continuation.prefix + continuation.tokens[:passed]
            self._ways[way] = (continuation, passed)
        return continuation, 0

    def guess(self, prefix: tuple[int, ...]) -> tuple[int, ...]:
        """Guess what follows a prefix, from the hypothesis that shares most of it.

        The guess is verified, not trusted.
        """
        best: tuple[int, ...] = ()
        most = -1
        for continuation in self._found:
            path = continuation.prefix + continuation.tokens
            shared = longest_common_prefix_tokens([path, prefix])
            if shared > most:
                best, most = path[len(prefix) :], shared
        return best


class SearchBatcher:
    """Collects tasks until every session waits, then does them all. Belongs to one event loop."""

    def __init__(self, work: Callable[[Sequence[SearchTask]], None]) -> None:
        self._work = work
        self._waiting: dict[Hashable, tuple[SearchTask, asyncio.Future[SearchTask]]] = {}

    async def done(self, key: Hashable, make: Callable[[], SearchTask]) -> SearchTask:
        """Return the finished task; requests with the same key share one task."""
        if key not in self._waiting:
            loop = asyncio.get_running_loop()
            if not self._waiting:
                loop.call_soon(self._work_when_all_wait, 0)
            self._waiting[key] = (make(), loop.create_future())
        # Shielded: a cancelled session must not cancel others that wait for the same task.
        return await asyncio.shield(self._waiting[key][1])

    def _work_when_all_wait(self, asked_before: int) -> None:
        """Work once a round of the event loop has added no task."""
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


HYPOTHESES_FOLDER = "hypotheses"
_KEY = "hypotheses"


class OpenedInput:
    """Answers the sessions of one input.

    Args:
        tally: counts hypotheses ``asked`` for, those of them ``searched``, and likewise
            ``beams asked`` and ``beams searched``.
    """

    def __init__(
        self,
        recording: Recording,
        recorded: RecordedInput,
        language: str,
        desk: SearchBatcher,
        tally: Counter[str],
    ) -> None:
        self.recorded = recorded
        self._messages = [message.encoded for message in recording.messages(recorded)]
        self._numbers = {
            (revision.end_sample, revision.final): number
            for number, revision in enumerate(recorded.revisions)
        }
        self._evidence: dict[int, Evidence] = {}
        self._blocks: dict[int, StateBlock] = {}
        self._desk = desk
        self._tally = tally
        # Keyed by revision and whether the end of sentence was forbidden.
        self._memos: dict[tuple[int, bool], ContinuationMemo] = defaultdict(ContinuationMemo)
        self._beams: dict[HypothesisRequest, Continuation] = {}
        name = f"{recorded.index:04d}.{language}.safetensors"
        self._path = recording.folder / HYPOTHESES_FOLDER / name
        if self._path.exists():
            self._read_known()

    def revision(self, end_sample: int, *, final: bool) -> tuple[int, Revision]:
        """Return the number, from 0, of the revision that ends at this sample, and the revision."""
        number = self._numbers.get((end_sample, final))
        if number is None:
            end_ms = end_sample * 1000 / self.recorded.sample_rate_hertz
            raise RecordingError(
                f"{self.recorded.source}: nothing was recorded at {end_ms:g} ms; allowed: segments "
                "whose boundaries `earvoice record --segment` was given"
            )
        return number, self.recorded.revisions[number]

    def state_count(self, number: int) -> int:
        return self._messages[number].states.state_count

    def encoded(self, number: int, timings: HopTimings) -> Encoded:
        if number not in self._evidence:
            self._evidence[number] = evidence_of(self._messages[number])
        return Encoded(self._messages[number].states, self._evidence[number], timings)

    def block(self, number: int) -> StateBlock:
        """Return a revision's states as the decoder service takes them.

        Always the same object, because a search caches what it has computed for it.
        """
        if number not in self._blocks:
            self._blocks[number] = StateBlock(self._messages[number].states)
        return self._blocks[number]

    def keep(self) -> None:
        """Write the known hypotheses beside the recording, for later replays."""
        weights: dict[str, torch.Tensor] = {}
        greedy = [
            {"revision": revision, "forbid_end": forbid_end, **_describe(continuation, weights)}
            for (revision, forbid_end), memo in self._memos.items()
            for continuation in memo.found
        ]
        beams = [
            {
                "request": asdict(request),
                "best": _describe(beam, weights),
                "alternatives": beam.alternatives,
                "step_count": beam.step_count,
            }
            for request, beam in self._beams.items()
        ]
        self._path.parent.mkdir(exist_ok=True)
        with atomic_write(self._path) as partial:
            save_file(weights, partial, {_KEY: json.dumps({"greedy": greedy, "beams": beams})})

    def _read_known(self) -> None:
        try:
            with safetensors.safe_open(self._path, framework="pt") as file:
                content = json.loads(file.metadata()[_KEY])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            for line in content["greedy"]:
                memo = self._memos[line["revision"], line["forbid_end"]]
                memo.add(_continuation(line, weights))
            for line in content["beams"]:
                fields = line["request"]
                request = HypothesisRequest(**{**fields, "prefix": tuple(fields["prefix"])})
                self._beams[request] = replace(
                    _continuation(line["best"], weights),
                    alternatives=tuple(map(tuple, line["alternatives"])),
                    step_count=line["step_count"],
                )
        except (safetensors.SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
            raise RecordingError(f"{self._path} cannot be read: {error}") from error

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
            return SearchTask(request, self.block(request.revision), guess)

        search = await self._desk.done((id(self), request), make)
        # Of the sessions that waited for it, the first adds it to the memo.
        return memo.find(request.prefix, request.limit) or memo.add(search.result())

    async def beam(self, request: HypothesisRequest) -> Continuation:
        self._tally["beams asked"] += 1
        if request not in self._beams:

            def make() -> SearchTask:
                self._tally["beams searched"] += 1
                return SearchTask(request, self.block(request.revision))

            task = await self._desk.done((id(self), request), make)
            self._beams[request] = task.result()
        return self._beams[request]


def _describe(continuation: Continuation, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    name = str(len(weights))
    weights[name] = continuation.weights.contiguous()
    return {
        "prefix": continuation.prefix,
        "tokens": continuation.tokens,
        "ended": continuation.ended,
        "log_probabilities": continuation.log_probabilities,
        "source": continuation.source,
        "weights": name,
    }


def _continuation(line: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Continuation:
    return Continuation(
        tuple(line["prefix"]),
        tuple(line["tokens"]),
        line["ended"],
        tuple(line["log_probabilities"]),
        weights[line["weights"]],
        source=tuple((token, log_probability) for token, log_probability in line.get("source", ())),
    )
