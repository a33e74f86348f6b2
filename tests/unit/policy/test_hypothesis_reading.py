"""A generation that another replica begins again is read anew."""

from __future__ import annotations

from dataclasses import replace

from earvoice.policies import Offline
from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.endpoints import Segment
from earvoice.policy.timeline import HopTimings, SegmentTimeline
from earvoice.policy.translation import HypothesisReading
from earvoice.policy.utterance import Utterance, UtteranceState
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

    async def keep_alive(self) -> None:
        """Nobody's patience ends here."""


def steps(*ids: int, ended: bool = False, restarts: bool = False, **more) -> GenerationSteps:
    tokens = [make_token(token) for token in ids]
    end = make_token(2) if ended else None
    return GenerationSteps(tokens, end, HopTimings(), restarts=restarts, **more)


END = GenerationEnd(False, HopTimings())


def new_utterance_and_timeline() -> tuple[Utterance, SegmentTimeline]:
    timeline = SegmentTimeline(segment=Segment(1, 6400, 6400), grid_arrival_s=0.0, started_s=0.0)
    return Utterance(UtteranceState(), Offline()), timeline


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
    utterance, timeline = new_utterance_and_timeline()
    utterance.draft = (7,)
    await reading.finish(utterance, timeline)
    assert utterance.draft == (7, 11, 12)


async def test_a_generation_may_be_lost_once_it_is_decided():
    """There is no end then, and no need of one."""
    reading = HypothesisReading(PreparedDecoder(steps(10, ended=True)), REQUEST)
    await reading.read(None)
    utterance, timeline = new_utterance_and_timeline()
    await reading.finish(utterance, timeline)
    assert reading.end is None
    assert timeline.draft_accepted_count is None


async def test_the_draft_that_counts_is_the_one_asked_for():
    """What another replica was told to expect is no merit of it."""
    request = replace(REQUEST, draft=(10, 13))
    again = steps(10, 11, 12, ended=True, restarts=True)
    reading = HypothesisReading(PreparedDecoder(steps(10, 11), again, END), request)
    await reading.read(None)
    utterance, timeline = new_utterance_and_timeline()
    await reading.finish(utterance, timeline)
    assert timeline.draft_accepted_count == 1
