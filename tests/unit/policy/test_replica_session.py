"""Sessions on replicas: steps follow the prefix, old answers are ignored, a loss is made good."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.policies.base import Hypothesis
from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.call import BackendTimeouts, ReplicaLostError, request_clock
from earvoice.policy.backends.replica_session import (
    MAX_REPLAYS_WITHOUT_ANSWER,
    DecoderSession,
    ReplayBudget,
    SessionTerms,
    draft_after,
)
from earvoice.policy.backends.replicas import DECODER
from earvoice.policy.translation import HypothesisReading
from earvoice.runtime.errors import BackendUnavailableError
from tests.unit.policy.running import OPTIONS

STATES = types_pb2.States(states_id=types_pb2.StatesId(utterance=0, revision=1))
REQUEST = GenerationRequest(STATES, prefix=(5, 6), draft=(), max_new_tokens=10)


class ScriptedCall:
    """Gives prepared answers and keeps what was written; at the end of its script it is lost."""

    def __init__(self, answers: Sequence[pb.DecodeResponse]) -> None:
        self.answers = deque(answers)
        self.written: list[pb.DecodeRequest] = []

    def clock(self):
        return request_clock(lambda: 0.0)

    async def write(self, request: pb.DecodeRequest) -> None:
        self.written.append(request)

    async def read(self) -> pb.DecodeResponse:
        if not self.answers:
            raise ReplicaLostError("the decoder is gone")
        return self.answers.popleft()

    def cancel(self) -> None:
        """Nobody waits."""


class ReadyReplica:
    address = "decoder:1"
    is_ready = True

    def note_session_left(self) -> None:
        """Nobody counts."""


class ScriptedReplicas:
    """Has these calls open, one after the other."""

    kind = DECODER

    def __init__(self, *calls: ScriptedCall) -> None:
        self._calls = deque(calls)

    async def open(self, *_, **__) -> tuple[ReadyReplica, ScriptedCall]:
        return ReadyReplica(), self._calls.popleft()

    def mark_lost(self, replica: ReadyReplica) -> None:
        """Nobody else asks."""


async def session_on(*calls: ScriptedCall) -> DecoderSession:
    budget = ReplayBudget(Counter())
    terms = SessionTerms(OPTIONS, "h1", "s", budget, BackendTimeouts(), lambda: 0.0, {})
    session = DecoderSession(ScriptedReplicas(*calls), terms)  # type: ignore[arg-type]
    await session.open()
    return session


def steps(generation: int, *steps: tuple[int, bool]) -> pb.DecodeResponse:
    message = pb.Steps(generation_id=generation)
    for index, ends in steps:
        message.steps.add(index=index, token=index, text=b"w", end_of_sequence=ends)
    return pb.DecodeResponse(steps=message)


def done(generation: int, reason: int = pb.GenerationDone.REASON_END_OF_SEQUENCE):
    return pb.DecodeResponse(done=pb.GenerationDone(generation_id=generation, reason=reason))


async def answers_to(
    call: ScriptedCall,
    decoder: DecoderSession | None = None,
    request: GenerationRequest = REQUEST,
) -> list[object]:
    decoder = decoder or await session_on(call)
    return [answer async for answer in decoder.generate(request)]


async def test_the_end_of_sentence_is_no_token():
    """It comes beside the tokens, with its own attention."""
    first, end = await answers_to(ScriptedCall([steps(1, (2, False), (3, True)), done(1)]))
    assert isinstance(first, GenerationSteps)
    assert [token.token_id for token in first.tokens] == [2]
    assert first.end is not None
    assert isinstance(end, GenerationEnd)
    assert not end.hit_limit


def beam(generation: int, *hypotheses: Sequence[int], first: int = 2) -> pb.DecodeResponse:
    """A beam of these tokens, each hypothesis closed by an end of sentence; a row of prefix."""
    message = pb.Beam(generation_id=generation)
    for tokens in hypotheses:
        found = message.hypotheses.add()
        for index, token in enumerate([*tokens, 0], first):
            found.steps.add(index=index, token=token, end_of_sequence=token == 0)
    message.prefix_attention.add(weights=[0.25, 0.75])
    return pb.DecodeResponse(beam=message)


async def test_a_beam_is_the_best_hypothesis_and_its_alternatives():
    """One answer with all tokens of the best, every item's ids, and then the end."""
    request = dataclasses.replace(REQUEST, beam_size=3, all_hypotheses=True, prefix_attention=True)
    call = ScriptedCall([beam(1, [7, 8], [7], [9, 8, 7]), done(1)])
    first, end = await answers_to(call, request=request)
    assert isinstance(first, GenerationSteps)
    assert [token.token_id for token in first.tokens] == [7, 8]
    assert first.end is not None
    assert first.alternatives == [[7, 8], [7], [9, 8, 7]]
    assert first.prefix_attention == [[0.25, 0.75]]
    assert isinstance(end, GenerationEnd)


async def test_alternatives_come_only_where_they_were_asked_for():
    """The best hypothesis of a beam alone has none."""
    first, _ = await answers_to(ScriptedCall([beam(1, [7, 8]), done(1)]))
    assert not first.alternatives


async def test_a_beam_that_does_not_follow_the_prefix_is_a_bug():
    """Append-only is checked for a beam, too, whichever of its hypotheses it is."""
    with pytest.raises(RuntimeError, match="step 3, expected 2"):
        await answers_to(ScriptedCall([beam(1, [7], first=3)]))
    answer = beam(1, [7], [8])
    answer.beam.hypotheses[1].steps[0].index = 3
    request = dataclasses.replace(REQUEST, beam_size=2, all_hypotheses=True)
    with pytest.raises(RuntimeError, match="step 3, expected 2"):
        await answers_to(ScriptedCall([answer]), request=request)


async def test_what_is_wanted_goes_to_the_decoder():
    """Each generation names its own search and attention."""
    request = dataclasses.replace(
        REQUEST,
        beam_size=4,
        attention_layer=2,
        attention_heads=(1, 3),
        all_hypotheses=True,
        prefix_attention=True,
    )
    call = ScriptedCall([beam(1, [7]), done(1)])
    await answers_to(call, request=request)
    command = call.written[-1].generate
    assert (command.beam_size, command.attention_layer) == (4, 2)
    assert list(command.attention_heads) == [1, 3]
    assert command.all_hypotheses
    assert command.prefix_attention


async def test_a_length_limit_is_told():
    """The guards' count needs it."""
    *_, end = await answers_to(ScriptedCall([done(1, pb.GenerationDone.REASON_LIMIT)]))
    assert end.hit_limit


@pytest.mark.parametrize("index", [1, 3])
async def test_steps_that_do_not_follow_the_prefix_are_a_bug(index: int):
    """Append-only is checked where it could break."""
    with pytest.raises(RuntimeError, match=f"step {index}, expected 2"):
        await answers_to(ScriptedCall([steps(1, (index, False))]))


async def test_answers_of_an_earlier_generation_are_ignored():
    """Steps on their way when a halt was sent still come."""
    call = ScriptedCall([done(1), steps(1, (9, False)), steps(2, (2, True)), done(2)])
    decoder = await session_on(call)
    await answers_to(call, decoder)
    first, _ = await answers_to(call, decoder)
    assert first.end is not None


async def test_the_same_states_are_sent_once():
    """A second generation on one revision needs only its own command."""
    call = ScriptedCall([done(1), done(2)])
    decoder = await session_on(call)
    await answers_to(call, decoder)
    await answers_to(call, decoder)
    kinds = [request.WhichOneof("command") for request in call.written]
    assert kinds == ["states", "generate", "generate"]


async def test_a_halt_names_the_running_generation():
    """A sign of life names none."""
    call = ScriptedCall([steps(1, (2, False)), done(1, pb.GenerationDone.REASON_HALTED)])
    decoder = await session_on(call)
    async for answer in decoder.generate(REQUEST):
        if isinstance(answer, GenerationSteps):
            decoder.halt()
    await asyncio.sleep(0)
    assert call.written[-1].halt.generation_id == 1
    await decoder.keep_alive()
    assert call.written[-1].halt.generation_id == 0


END = 2
sentences = st.lists(st.integers(10, 14), max_size=8)
cuts = st.lists(st.integers(1, 3), max_size=10)


def answers(generation: int, sentence: Sequence[int], sizes: Sequence[int]):
    """A sentence and its end, cut into answers of these sizes."""
    ids, at = [*sentence, END], len(REQUEST.prefix)
    found = []
    for size in [*sizes, *[1] * len(ids)]:
        message = pb.Steps(generation_id=generation)
        for token in ids[:size]:
            message.steps.add(index=at, token=token, end_of_sequence=token == END)
            at += 1
        ids = ids[size:]
        found.append(pb.DecodeResponse(steps=message))
        if not ids:
            break
    return found


async def read_from(decoder: DecoderSession, request: GenerationRequest = REQUEST) -> Hypothesis:
    return await HypothesisReading(decoder, request).read(None)


@given(sentences, sentences, cuts, cuts, st.integers(0, 8))
async def test_another_replica_has_the_last_word(first, second, sizes, more_sizes, lost_after):
    """It begins again, whether it agrees or not, with what is known for its draft."""
    begun = answers(1, first, sizes)[:lost_after]
    calls = ScriptedCall(begun), ScriptedCall([*answers(2, second, more_sizes), done(2)])
    hypothesis = await read_from(await session_on(*calls))
    assert hypothesis.token_ids == [*REQUEST.prefix, *second]
    assert hypothesis.ended
    known = [step.token for answer in begun for step in answer.steps.steps]
    assert list(calls[1].written[-1].generate.draft) == known[: REQUEST.max_new_tokens]


async def test_a_generation_that_is_decided_needs_no_other_replica():
    """Its tokens are here."""
    decoder = await session_on(ScriptedCall(answers(1, [10], [1])))
    found = []
    async for answer in decoder.generate(REQUEST):
        found.append(answer)
        decoder.halt()
    assert len(found) == 2


def test_what_was_read_stands_before_the_rest_of_the_draft():
    """The draft goes on behind it only where it was right so far."""
    for draft, expected in (((10, 11, 12), [10, 11, 12]), ((10, 13, 12), [10, 11])):
        request = dataclasses.replace(REQUEST, draft=draft)
        assert draft_after([], request) == list(draft)
        assert draft_after([10, 11], request) == expected


def test_a_beam_has_no_draft():
    """It comes whole, or not at all."""
    request = dataclasses.replace(REQUEST, beam_size=4)
    assert draft_after([10, 11], request) == ()


def spent_budget() -> ReplayBudget:
    """A budget with nothing left."""
    budget = ReplayBudget(Counter())
    for service in ("encoder", "decoder")[:MAX_REPLAYS_WITHOUT_ANSWER]:
        budget.spend(service)
    return budget


def test_both_services_share_it():
    """A recording may kill either."""
    with pytest.raises(BackendUnavailableError, match="2 others") as caught:
        spent_budget().spend("encoder")
    assert caught.value.retry_after_ms is None
    assert caught.value.metadata == {"replays": "2"}


def test_another_utterance_has_its_own():
    """More audio of the same one has not."""
    budget = spent_budget()
    budget.begin(0)
    with pytest.raises(BackendUnavailableError):
        budget.spend("encoder")
    budget.begin(1)
    budget.spend("encoder")


def test_an_answer_gives_back_what_its_service_has_spent():
    """The other may still be what the audio ends."""
    budget = spent_budget()
    budget.note_answer("encoder")
    budget.spend("decoder")
    with pytest.raises(BackendUnavailableError):
        budget.spend("decoder")
