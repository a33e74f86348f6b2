"""A decoder session that outlives the replica it runs on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.answer_splice import AnswerSplice
from earvoice.policy.backends.decoder_stream import DecoderStream
from earvoice.policy.backends.loss import is_loss
from earvoice.policy.backends.request_clock import lasting_since
from earvoice.policy.backends.seat import Seat
from earvoice.runtime.errors import EarvoiceError

Answer = GenerationSteps | GenerationEnd


class ReplayingDecoder:
    """Asks another replica for the rest of a generation when one is lost.

    States and prefix come with each request, so a decoder may be left between any two of them.

    Args:
        seat: the session's place.
    """

    def __init__(self, seat: Seat[DecoderStream]) -> None:
        self._seat = seat
        self._is_halted = False

    @property
    def replay_count(self) -> int:
        """How often the session went on elsewhere after a loss."""
        return self._seat.replay_count

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Answer, None]:
        """Decode; yields steps, then one end, which is missing where it is lost after a halt."""
        await self._seat.move()
        self._is_halted = False
        sent_s = time.perf_counter()
        splice = AnswerSplice(request)
        lost: EarvoiceError | None = None
        while True:
            if lost is not None:
                await self._seat.replace(lost)
            try:
                async with aclosing(self._attempt(splice)) as answers:
                    async for answer in answers:
                        yield answer if lost is None else _since(answer, sent_s)
            except EarvoiceError as error:
                if self._is_halted and is_loss(error):
                    # Its tokens are here; the next request finds out that the replica is gone.
                    return
                lost = error
            else:
                return

    def halt(self) -> None:
        """Ask the running generation to stop."""
        self._is_halted = True
        self._seat.stream.halt()

    async def stay(self) -> None:
        """Say that the session lives on although there is nothing to decode."""
        try:
            await self._seat.stream.stay()
        except EarvoiceError as error:
            # To open a session is a sign of life, too.
            await self._seat.replace(error)

    async def _attempt(self, splice: AnswerSplice) -> AsyncGenerator[Answer, None]:
        async with aclosing(self._seat.stream.generate(splice.begin())) as answers:
            async for answer in answers:
                if isinstance(answer, GenerationEnd):
                    yield splice.end(answer)
                elif (steps := splice.new_steps(answer)) is not None:
                    yield steps


def _since(answer: Answer, sent_s: float) -> Answer:
    return dataclasses.replace(answer, timings=lasting_since(answer.timings, sent_s))
