"""A generation that several replicas have a part in; how many replicas an utterance may cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.replica_session import (
    MAX_REPLAYS_WITHOUT_ANSWER,
    AnswerSplice,
    ReplayBudget,
)
from earvoice.policy.timeline import HopTimings
from earvoice.runtime.errors import BackendUnavailableError
from tests.fakes import make_token

END = 2
sentences = st.lists(st.integers(10, 14), max_size=8)
cuts = st.lists(st.integers(1, 3), max_size=10)


def request(draft: Sequence[int] = (), beam_size: int = 1) -> GenerationRequest:
    return GenerationRequest("states", (), draft, max_new_tokens=20, beam_size=beam_size)


def answers(sentence: Sequence[int], sizes: Sequence[int]) -> list[GenerationSteps]:
    """A sentence and its end, cut into answers of these sizes."""
    found, at = [], 0
    for size in [*sizes, *[1] * len(sentence)]:
        ids = sentence[at : at + size]
        at += size
        end = make_token(END) if at >= len(sentence) else None
        found.append(GenerationSteps([make_token(i) for i in ids], end, HopTimings()))
        if end is not None:
            break
    return found or [GenerationSteps([], make_token(END), HopTimings())]


class Reader:
    """Reads as `HypothesisReading` does."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ended = False
        self.restarts = 0

    def read(self, steps: GenerationSteps | None) -> None:
        if steps is None:
            return
        if steps.restarts:
            self.ids, self.ended = [], False
            self.restarts += 1
        assert not self.ended
        self.ids += [token.token_id for token in steps.tokens]
        self.ended = steps.end is not None


@given(sentences, cuts, cuts, st.integers(0, 8))
def test_a_replica_that_agrees_is_not_noticed(sentence, first_sizes, second_sizes, lost_after):
    """Wherever the first was lost, and however answers are cut."""
    splice, reader = AnswerSplice(request()), Reader()
    splice.begin()
    for steps in answers(sentence, first_sizes)[:lost_after]:
        reader.read(splice.joined(steps))
    known = [*reader.ids, *([END] if reader.ended else [])]
    assert list(splice.begin().draft) == known
    for steps in answers(sentence, second_sizes):
        reader.read(splice.joined(steps))
    assert (reader.ids, reader.ended, reader.restarts) == (sentence, True, 0)


@given(sentences, sentences, cuts, cuts, st.integers(0, 8))
def test_a_replica_that_differs_has_the_last_word(first, second, sizes, more_sizes, lost_after):
    """The reading begins anew at most once, and ends with what the second replica says."""
    splice, reader = AnswerSplice(request()), Reader()
    splice.begin()
    for steps in answers(first, sizes)[:lost_after]:
        reader.read(splice.joined(steps))
    splice.begin()
    for steps in answers(second, more_sizes):
        reader.read(splice.joined(steps))
    assert (reader.ids, reader.ended) == (second, True)
    assert reader.restarts <= 1


def test_what_was_read_stands_before_the_rest_of_the_draft():
    """The draft goes on behind it only where it was right so far."""
    for draft, expected in (((10, 11, 12), (10, 11, 12)), ((10, 13, 12), (10, 11))):
        splice = AnswerSplice(request(draft))
        assert splice.begin().draft == draft
        splice.joined(GenerationSteps([make_token(10), make_token(11)], None, HopTimings()))
        assert splice.begin().draft == expected


def test_a_beam_has_no_draft():
    """It comes whole, or not at all."""
    splice = AnswerSplice(request(beam_size=4))
    splice.begin()
    splice.joined(answers([10, 11], [2])[0])
    assert splice.begin().draft == ()


def test_the_draft_that_counts_is_the_one_asked_for():
    """What another replica was told to expect is no merit of it."""
    splice = AnswerSplice(request((10, 13)))
    told = GenerationEnd(False, HopTimings(), draft_accepted_count=1)
    splice.begin()
    splice.joined(answers([10, 11, 12], [3])[0])
    assert splice.joined(told).draft_accepted_count == 1
    splice.begin()
    splice.joined(answers([10, 11, 12], [3])[0])
    again = GenerationEnd(False, HopTimings(), draft_accepted_count=4)
    assert splice.joined(again).draft_accepted_count == 1


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
