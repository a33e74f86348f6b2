"""EDAtt and AlignAtt: stop at the first token that looks at the newest audio."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, ClassVar, Literal, Self

from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.runtime.parameter import parameter


def layer_parameter() -> Any:
    return parameter(
        None,
        minimum=1,
        model="default_attention_layer",
        model_maximum="decoder_layer_count",
        help="decoder layer whose cross-attention is read",
    )


def heads_parameter() -> Any:
    return parameter(
        (),
        minimum=1,
        unique=True,
        model_maximum="decoder_head_count",
        default_text="model's on its own layer, else all",
        help="heads to average over",
    )


def early_end_parameter() -> Any:
    return parameter(default=False, help="commit an end of sentence before the end of the source")


class AttentionPolicy(DecisionPolicy):
    """Stops at the first new token that looks at the newest audio; commits what comes before.

    Each new token is tested with the row of the step that predicts it; the prefix never is. The
    last state is dropped: attention piles up on it whatever the token (Papi 2023, figure 2).
    """

    attention_layer: int
    attention_heads: tuple[int, ...]
    allow_early_end: bool

    @abstractmethod
    def is_decided(self, token: Token, new_token_index: int) -> bool:
        """Say whether a token looks at the newest audio."""

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Read on while there is nothing besides the dropped state."""
        return heard.state_count > 1

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        count, end = self.undecided_count(hypothesis.tokens), hypothesis.end
        if end is None or not self.allow_early_end or count < len(hypothesis.tokens):
            return Decision(count)
        return Decision(count, ends_utterance=not self.is_decided(end, count))

    @property
    def attention(self) -> tuple[int | None, tuple[int, ...]]:
        return self.attention_layer, self.attention_heads

    @property
    def ends_early(self) -> bool:
        return self.allow_early_end

    def resolved(self, model: Any) -> Self:
        """Use the model's heads on the model's own layer only: on another they mean nothing."""
        on_own_layer = self.attention_layer in (None, model.default_attention_layer)
        if self.attention_heads or not on_own_layer:
            return super().resolved(model)
        changes: dict[str, Any] = {"attention_heads": tuple(model.default_attention_heads)}
        return replace(super().resolved(model), **changes)


SURE_PROBABILITY = 0.9
"""From this probability on, a token needs no patience."""
FAST_ALPHA, FAST_WAIT_MS = 0.6, 700.0
SLOW_ALPHA, SLOW_WAIT_MS = 0.03, 2300.0


def _alpha_at(_: Edatt, wait_ms: float) -> float:
    """Equal steps of lag are equal factors of alpha, as on the curves of Papi 2023.

    Measured with the shipped model.
    """
    slowness = (wait_ms - FAST_WAIT_MS) / (SLOW_WAIT_MS - FAST_WAIT_MS)
    return FAST_ALPHA * math.exp(slowness * math.log(SLOW_ALPHA / FAST_ALPHA))


@dataclass(frozen=True)
class Edatt(AttentionPolicy):
    """Encoder-decoder attention policy (Papi 2023, equation 1).

    Each new token's row loses its last state, is rescaled, and its last lambda entries are added
    up. At the first sum of alpha or more it stops; everything before is committed. ``l2`` divides a
    row by its Euclidean norm, as the released code does and the published thresholds assume.

    With patience, which the paper does not have, lambda is larger for an unsure token: what is
    misheard is often heard right once more has been said.
    """

    name: ClassVar[str] = "edatt"

    alpha: float = parameter(
        None,
        minimum=0.0,
        maximum=1.0,
        model="default_alpha",
        lag=_alpha_at,
        help="threshold; a larger one commits sooner",
    )
    lambda_states: int = parameter(
        None,
        minimum=1,
        maximum=64,
        unit="states",
        model="default_lambda_states",
        help="last states that are summed, or all if there are fewer",
    )
    attention_layer: int = layer_parameter()
    normalization: Literal["l2", "l1"] = parameter(
        "l2", help="divide by the row's Euclidean norm, or by its sum"
    )
    allow_early_end: bool = early_end_parameter()
    attention_heads: tuple[int, ...] = heads_parameter()
    patience_states: int | None = parameter(
        None,
        minimum=0,
        maximum=256,
        unit="states",
        default_text="0",
        help="states summed in addition for a token of probability 0; falls linearly to none at "
        f"probability {SURE_PROBABILITY}",
    )

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        del new_token_index
        return self.recent_attention(token.attention, token.log_probability) >= self.alpha

    def recent_attention(self, attention: Sequence[float], log_probability: float = 0.0) -> float:
        """Return the sum of a row's rescaled attention on the lambda states before the last one.

        With patience, on more of them, depending on the probability of the row's token.
        """
        kept = attention[:-1]
        scale = math.sqrt(sum(map(mul, kept, kept))) if self.normalization == "l2" else sum(kept)
        if scale <= 0.0:
            return 0.0
        states = self.lambda_states
        if self.patience_states:
            doubt = max(0.0, 1.0 - math.exp(log_probability) / SURE_PROBABILITY)
            states += round(self.patience_states * doubt)
        return sum(kept[-states:]) / scale


STATE_MS = 40.0
"""Audio for each encoder state of the shipped model, which does not compress."""


@dataclass(frozen=True)
class AlignAtt(AttentionPolicy):
    """Alignment policy (Papi 2023b).

    A token is aligned with the state that it attends to most, the last state left out. It stops at
    the first token whose state is number (S - 1) - f or a later one, counted from 0.
    """

    name: ClassVar[str] = "align_att"

    frames: int = parameter(
        None,
        minimum=1,
        maximum=256,
        unit="states",
        model="default_frames",
        lag=lambda _, wait_ms: wait_ms / STATE_MS,
        help="f, states before the last that count as newest; a larger f waits longer",
    )
    attention_layer: int = layer_parameter()
    attention_heads: tuple[int, ...] = heads_parameter()
    allow_early_end: bool = early_end_parameter()

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        del new_token_index
        kept = token.attention[:-1]
        if not kept:
            return True
        aligned = max(range(len(kept)), key=kept.__getitem__)
        return aligned >= len(kept) - self.frames
