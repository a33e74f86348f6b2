"""The cost of the decoder service's computation, measured once and then added up.

A replay finds most hypotheses in its memo, so its own time says nothing about a live run. But what
a live run computes is known exactly: one pass over prefix and draft, then steps. Both are timed on
the service's own search, alone, at several lengths, and a plane is fitted for all other lengths.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Prompt, StateBlock, block_of
from earvoice.evaluation.recording import RecordingError
from earvoice.runtime.files import atomic_write

STATE_COUNTS = (8, 40, 100)
TOKEN_COUNTS = (2, 16, 48)
REPETITIONS = 7
COST_FILE = "decoding_cost.{}.json"
"""For each target language, because a model may have layers of their own for some."""
SOURCE_TOKENS_PER_STATE = 0.16
"""Of speech in the source language: four a second, with 25 states."""
ANY_TOKEN = 10


@dataclass(frozen=True)
class Plane:
    """Milliseconds as a linear function."""

    base_ms: float
    token_ms: float
    state_ms: float

    def at(self, tokens: int, states: int) -> float:
        return max(0.0, self.base_ms + tokens * self.token_ms + states * self.state_ms)


@dataclass(frozen=True)
class DecodingCost:
    opening: Plane
    step: Plane


def measure_cost(
    strategy: SearchStrategy, language_tokens: tuple[int, ...], dimension: int, beam_size: int
) -> DecodingCost:
    """Time a single search with this beam size.

    Where the language is translated, the opening verifies a source text of a common length, and
    writes a few tokens of one, as in a live segment.

    Args:
        language_tokens: what every hypothesis begins with, the start token included.
    """
    places = [(tokens, states) for tokens in TOKEN_COUNTS for states in STATE_COUNTS]
    openings_ms: list[float] = []
    steps_ms: list[float] = []
    for tokens, states in places:
        block = _noise(states, dimension)
        plan = BeamPlan(beam_size, max_new_tokens=400) if beam_size > 1 else None
        prefix = (ANY_TOKEN,) * (tokens - len(language_tokens))
        opening = Prompt((*language_tokens, *prefix), (), 1, forbid_end=True, beam=plan)
        openings_ms.append(_shortest_ms(partial(_begin_anew, strategy, block, opening)))
        run, _ = strategy.begin(block, opening)
        strategy.step([run])
        steps_ms.append(_shortest_ms(partial(strategy.step, [run])))
    return DecodingCost(_plane(places, openings_ms), _plane(places, steps_ms))


def cost_book(path: Path, measure: Callable[[int], DecodingCost]) -> Callable[[int], DecodingCost]:
    """Return a function from beam size to cost; costs are kept in a file for all replays."""
    costs = _read_costs(path) if path.exists() else {}

    def cost_of(beam_size: int) -> DecodingCost:
        if beam_size not in costs:
            costs[beam_size] = measure(beam_size)
            content = {size: asdict(cost) for size, cost in costs.items()}
            # Atomically, because another replay may be reading it.
            with atomic_write(path) as partial:
                partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")
        return costs[beam_size]

    return cost_of


def _read_costs(path: Path) -> dict[int, DecodingCost]:
    try:
        return {
            int(beam_size): DecodingCost(Plane(**planes["opening"]), Plane(**planes["step"]))
            for beam_size, planes in json.loads(path.read_text(encoding="utf8")).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordingError(
            f"{path} cannot be read: {error!r}; replays measure again without it"
        ) from error


def _noise(state_count: int, dimension: int) -> StateBlock:
    values = np.random.default_rng(1).standard_normal((state_count, dimension), np.float32)
    source_text = [ANY_TOKEN] * round(SOURCE_TOKENS_PER_STATE * state_count)
    return replace(block_of(values), source_text=source_text)


def _begin_anew(strategy: SearchStrategy, block: StateBlock, opening: Prompt) -> None:
    """Begin on a new block, because a strategy caches what it has computed for known ones."""
    strategy.begin(replace(block, source_text=[*block.source_text]), opening)


def _shortest_ms(compute: Callable[[], object]) -> float:
    """The calling thread's own time for one call; the least of several."""
    shortest_s = float("inf")
    for _ in range(REPETITIONS):
        started_s = time.thread_time()
        compute()
        shortest_s = min(shortest_s, time.thread_time() - started_s)
    return shortest_s * 1000


def _plane(places: Sequence[tuple[int, int]], times_ms: Sequence[float]) -> Plane:
    rows = np.array([(1, tokens, states) for tokens, states in places], np.float64)
    solution = np.linalg.lstsq(rows, np.array(times_ms), rcond=None)[0]
    return Plane(*map(float, solution))
