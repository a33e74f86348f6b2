"""A generation that another replica begins again is read anew."""

from __future__ import annotations

from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.timeline import HopTimings
from earvoice.policy.translation import HypothesisReading
from tests.fakes import make_token

REQUEST = GenerationRequest("states", (1,), (), max_new_tokens=10)


class PreparedDecoder:
    """Gives prepared answers."""

    replay_count = 0

    def __init__(self, *answers: GenerationSteps | GenerationEnd) -> None:
        self.answers = answers

    async def generate(self, request):
        for answer in self.answers:
            yield answer

    def halt(self) -> None:
        """Nobody listens."""

    async def stay(self) -> None:
        """Nobody's patience ends here."""


def steps(*ids: int, ended: bool = False, restarts: bool = False, **more) -> GenerationSteps:
    tokens = [make_token(token) for token in ids]
    end = make_token(2) if ended else None
    return GenerationSteps(tokens, end, HopTimings(), restarts=restarts, **more)


END = GenerationEnd(False, HopTimings())


async def test_what_was_read_before_is_void():
    """Tokens, the end of sentence and the beam's alternatives."""
    first = steps(10, 11, ended=True, alternatives=[[10, 11], [10]])
    again = steps(10, 12, restarts=True)
    reading = HypothesisReading(PreparedDecoder(first, again, steps(13), END), REQUEST)
    hypothesis = await reading.read(None)
    assert hypothesis.token_ids == [1, 10, 12, 13]
    assert not hypothesis.ended
    assert hypothesis.alternatives == ()


class DecidesAtOnce:
    """Needs no second token."""

    def is_decided(self, token, index):
        return True


async def test_what_came_after_the_decision_is_kept_apart():
    """It was computed before the decoder had heard of it; the hypothesis is what was read."""
    decoder = PreparedDecoder(steps(10), steps(11), steps(12, ended=True), END)
    reading = HypothesisReading(decoder, REQUEST)
    hypothesis = await reading.read(DecidesAtOnce())
    assert hypothesis.token_ids == [1, 10]
    await reading.drain()
    assert reading.rest == [11, 12]


async def test_a_generation_may_be_lost_once_it_is_decided():
    """There is no end then, and no need of one."""
    reading = HypothesisReading(PreparedDecoder(steps(10, ended=True)), REQUEST)
    await reading.read(None)
    await reading.drain()
    assert reading.end is None
