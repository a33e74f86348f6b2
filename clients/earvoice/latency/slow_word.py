"""The slowest words, and what made each of them slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from earvoice.latency.stage import WORD_STAGES, Stage
from earvoice.latency.traced_word import TracedWord


@dataclass(frozen=True)
class SlowWord:
    """A word, and the stage that took most above its usual time.

    Attributes:
        number: of the word in its session, from 1.
        word: it.
        cause: the stage.
        cause_ms: what it took.
        usual_ms: the session's median of that stage.
    """

    number: int
    word: TracedWord
    cause: Stage
    cause_ms: float
    usual_ms: float


def slowest_words(words: Sequence[TracedWord], count: int = 10) -> list[SlowWord]:
    """Return the words with the largest lag, the slowest first.

    The largest stage would nearly always be the policy's wait for audio. The cause is the stage
    that is furthest above the median that it has in the session.
    """
    usual_ms = {
        stage.name: median(word.stages[stage.name] for word in words)
        for stage in WORD_STAGES
        if words
    }
    numbered = sorted(enumerate(words, start=1), key=lambda pair: -pair[1].lag_ms)
    return [_explain(number, word, usual_ms) for number, word in numbered[:count]]


def _explain(number: int, word: TracedWord, usual_ms: Mapping[str, float]) -> SlowWord:
    cause = max(WORD_STAGES, key=lambda stage: word.stages[stage.name] - usual_ms[stage.name])
    return SlowWord(number, word, cause, word.stages[cause.name], usual_ms[cause.name])
