"""Joins the answers of several replicas to one request into one generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.decisions.base import Token, longest_common_prefix_tokens


class AnswerSplice:
    """What was handed on of a generation is skipped when another replica begins it again.

    What was handed on is the beginning of the other's draft, so it costs one pass. Where the other
    answers otherwise (a near tie may fall out differently on another machine), the generation is
    given anew from its beginning, marked as such: nothing of it is committed while it is read.

    Args:
        request: what is generated.
    """

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        # Ends of sentence included.
        self._handed: list[Token] = []
        self._attempt: list[Token] = []
        self._attempt_count = 0

    def begin(self) -> GenerationRequest:
        """Return what to ask the next replica for."""
        self._attempt = []
        self._attempt_count += 1
        if self._attempt_count == 1 or self._request.beam_size > 1:
            return self._request
        handed = _ids(self._handed)
        expected = self._request.draft
        rest = expected[len(handed) :] if list(expected[: len(handed)]) == handed else ()
        draft = (*handed, *rest)[: self._request.max_new_tokens]
        return dataclasses.replace(self._request, draft=draft)

    def new_steps(self, steps: GenerationSteps) -> GenerationSteps | None:
        """Return what is new in a replica's answer; None for nothing."""
        fresh = [*steps.tokens, *([steps.end] if steps.end is not None else [])]
        known = self._handed[len(self._attempt) :]
        self._attempt += fresh
        if _ids(fresh[: len(known)]) != _ids(known[: len(fresh)]):
            self._handed = [*self._attempt]
            ended = steps.end is not None
            tokens = self._attempt[:-1] if ended else self._attempt
            return dataclasses.replace(steps, tokens=[*tokens], restarts=True)
        if known and len(fresh) <= len(known):
            return None
        self._handed += fresh[len(known) :]
        return dataclasses.replace(steps, tokens=steps.tokens[len(known) :])

    def end(self, end: GenerationEnd) -> GenerationEnd:
        """Return the generation's end; the draft that counts is the one that was asked for."""
        if self._attempt_count == 1:
            return end
        accepted = longest_common_prefix_tokens([self._request.draft, _ids(self._attempt)])
        return dataclasses.replace(end, draft_accepted_count=accepted)


def _ids(tokens: Sequence[Token]) -> list[int]:
    return [token.token_id for token in tokens]
