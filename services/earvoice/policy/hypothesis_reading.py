"""Reading one generation: as far as the policy needs it, then to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from earvoice.policy.backend import (
    DecoderBackend,
    GenerationEnd,
    GenerationRequest,
    GenerationSteps,
)
from earvoice.policy.decisions.base import DecisionPolicy, Hypothesis, Token
from earvoice.policy.timeline import HopTimings


class HypothesisReading:
    """One generation.

    Args:
        decoder: where it runs.
        request: what to decode.

    Attributes:
        deciding: the generation's timings at the answer read last.
        prefix_attention: a row for each token of the prefix, if asked for and answered.
        end: the generation's end, once it is here.
        rest: tokens that had been computed when the decoder was halted, behind the hypothesis.
    """

    def __init__(self, decoder: DecoderBackend, request: GenerationRequest) -> None:
        self._decoder = decoder
        self._request = request
        self._answers: AsyncIterator[GenerationSteps | GenerationEnd] = decoder.generate(request)
        self.deciding = HopTimings()
        self.prefix_attention: Sequence[Sequence[float]] = ()
        self.end: GenerationEnd | None = None
        self.rest: list[int] = []

    async def read(self, policy: DecisionPolicy | None) -> Hypothesis:
        """Read until the policy has decided, or to the end.

        Args:
            policy: asked after every token; None reads to the end.
        """
        tokens: list[Token] = []
        end: Token | None = None
        alternatives: Sequence[Sequence[int]] = ()
        async for answer in self._answers:
            self.deciding = answer.timings
            if isinstance(answer, GenerationEnd):
                self.end = answer
                break
            if answer.restarts:
                tokens, alternatives = [], ()
            first = len(tokens)
            tokens += answer.tokens
            end = answer.end
            alternatives = answer.alternatives or alternatives
            self.prefix_attention = answer.prefix_attention or self.prefix_attention
            if policy is not None and _is_decided(policy, tokens, first):
                self._decoder.halt()
                break
        return Hypothesis(tuple(self._request.prefix), tokens, end, alternatives)

    async def drain(self) -> HopTimings:
        """Read what is left and return the timings of the whole generation."""
        total = self.deciding
        if self.end is None:
            async for answer in self._answers:
                total = answer.timings
                if isinstance(answer, GenerationEnd):
                    self.end = answer
                    break
                # Another replica's tokens need not continue the hypothesis; as a guess they may.
                self.rest += [token.token_id for token in answer.tokens]
        return total


def _is_decided(policy: DecisionPolicy, tokens: list[Token], first: int) -> bool:
    return any(policy.is_decided(tokens[index], index) for index in range(first, len(tokens)))
