"""A generation that several replicas have a part in reads as if there had been one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.answer_splice import AnswerSplice
from earvoice.policy.timeline import HopTimings
from tests.unit.policy.scripted import make_token

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
        reader.read(splice.new_steps(steps))
    known = [*reader.ids, *([END] if reader.ended else [])]
    assert list(splice.begin().draft) == known
    for steps in answers(sentence, second_sizes):
        reader.read(splice.new_steps(steps))
    assert (reader.ids, reader.ended, reader.restarts) == (sentence, True, 0)


@given(sentences, sentences, cuts, cuts, st.integers(0, 8))
def test_a_replica_that_differs_has_the_last_word(first, second, sizes, more_sizes, lost_after):
    """The reading begins anew at most once, and ends with what the second replica says."""
    splice, reader = AnswerSplice(request()), Reader()
    splice.begin()
    for steps in answers(first, sizes)[:lost_after]:
        reader.read(splice.new_steps(steps))
    splice.begin()
    for steps in answers(second, more_sizes):
        reader.read(splice.new_steps(steps))
    assert (reader.ids, reader.ended) == (second, True)
    assert reader.restarts <= 1


def test_what_was_read_stands_before_the_rest_of_the_draft():
    """The draft goes on behind it only where it was right so far."""
    for draft, expected in (((10, 11, 12), (10, 11, 12)), ((10, 13, 12), (10, 11))):
        splice = AnswerSplice(request(draft))
        assert splice.begin().draft == draft
        splice.new_steps(GenerationSteps([make_token(10), make_token(11)], None, HopTimings()))
        assert splice.begin().draft == expected


def test_a_beam_has_no_draft():
    """It comes whole, or not at all."""
    splice = AnswerSplice(request(beam_size=4))
    splice.begin()
    splice.new_steps(answers([10, 11], [2])[0])
    assert splice.begin().draft == ()


def test_the_draft_that_counts_is_the_one_asked_for():
    """What another replica was told to expect is no merit of it."""
    splice = AnswerSplice(request((10, 13)))
    told = GenerationEnd(False, HopTimings(), draft_accepted_count=1)
    splice.begin()
    splice.new_steps(answers([10, 11, 12], [3])[0])
    assert splice.end(told).draft_accepted_count == 1
    splice.begin()
    splice.new_steps(answers([10, 11, 12], [3])[0])
    again = GenerationEnd(False, HopTimings(), draft_accepted_count=4)
    assert splice.end(again).draft_accepted_count == 1
