"""What the policies that read cross-attention share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.runtime.parameter import parameter


def layer_parameter() -> Any:
    return parameter(
        None,
        minimum=1,
        model="default_attention_layer",
        model_maximum="decoder_layer_count",
        help="decoder layer that is read",
    )


def heads_parameter() -> Any:
    return parameter(
        (),
        minimum=1,
        unique=True,
        default_text="model's on its own layer, else all",
        help="heads whose mean is read",
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
    def looks_at_newest(self, attention: Sequence[float]) -> bool:
        """Say whether a row of cross-attention, ``[S]``, looks at the newest audio."""

    def wants_hypothesis(self, heard: Heard) -> bool:
        """Read on while there is nothing besides the dropped state."""
        return heard.state_count > 1

    def is_decided(self, token: Token, new_token_index: int) -> bool:
        del new_token_index
        return self.looks_at_newest(token.attention)

    def decide(self, heard: Heard, hypothesis: Hypothesis) -> Decision:
        del heard
        for index, token in enumerate(hypothesis.tokens):
            if self.looks_at_newest(token.attention):
                return Decision(index)
        return Decision(len(hypothesis.tokens), ends_utterance=self._commits_end(hypothesis.end))

    @property
    def attention(self) -> tuple[int | None, tuple[int, ...]]:
        return self.attention_layer, self.attention_heads

    @property
    def ends_early(self) -> bool:
        return self.allow_early_end

    def resolved(self, model: Any) -> Self:
        """Take the model's heads on the model's own layer: in another they mean nothing."""
        on_own_layer = self.attention_layer in (None, model.default_attention_layer)
        if self.attention_heads or not on_own_layer:
            return super().resolved(model)
        changes: dict[str, Any] = {"attention_heads": tuple(model.default_attention_heads)}
        return replace(super().resolved(model), **changes)

    def _commits_end(self, end: Token | None) -> bool:
        if end is None or not self.allow_early_end:
            return False
        return not self.looks_at_newest(end.attention)
