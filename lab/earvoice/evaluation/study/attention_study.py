"""The settings of Papi 2023, section 5: which layer, which heads, how many last states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from earvoice.client.policy import AlignAtt, Edatt
from earvoice.evaluation.replay.setting import ReplaySetting

PARTS = ("layer", "heads", "lambda", "last state", "frames")
ALPHAS = (0.6, 0.4, 0.2, 0.1, 0.05)
LAMBDAS = (1, 2, 4, 6, 8)
FRAMES = (1, 2, 4, 6, 8, 12)


@dataclass(frozen=True)
class StudySetting:
    """A row of a table.

    Attributes:
        part: what is varied: ``layer``, ``heads``, ``lambda``, ``last state`` or ``frames``.
        value: what it is set to.
        setting: the rest is the model's.
    """

    part: str
    value: str
    setting: ReplaySetting


def study_settings(
    layers: int, heads: int, segment_ms: int, alphas: Sequence[float] = ALPHAS
) -> Iterator[StudySetting]:
    """Yield the settings, a part after the other; parts share settings.

    Args:
        layers: of the decoder.
        heads: of each of them.
        segment_ms: duration of a segment.
        alphas: thresholds; all are tried with each value.
    """
    for alpha in alphas:
        yield from (
            _row("layer", n, Edatt(alpha, attention_layer=n), segment_ms)
            for n in range(1, layers + 1)
        )
        mean = ReplaySetting(Edatt(alpha), segment_ms, attention="mean-over-layers")
        yield StudySetting("layer", "mean", mean)
        every = tuple(range(1, heads + 1))
        yield _row("heads", "mean", Edatt(alpha, attention_heads=every), segment_ms)
        yield from (
            _row("heads", n, Edatt(alpha, attention_heads=(n,)), segment_ms)
            for n in range(1, heads + 1)
        )
        yield from (_row("lambda", n, Edatt(alpha, lambda_states=n), segment_ms) for n in LAMBDAS)
        yield _row("last state", "dropped", Edatt(alpha), segment_ms)
        kept = ReplaySetting(Edatt(alpha), segment_ms, attention="with-the-last-state")
        yield StudySetting("last state", "kept", kept)
    yield from (_row("frames", n, AlignAtt(n), segment_ms) for n in FRAMES)


def _row(part: str, value: object, policy: Edatt | AlignAtt, segment_ms: int) -> StudySetting:
    return StudySetting(part, str(value), ReplaySetting(policy, segment_ms))
