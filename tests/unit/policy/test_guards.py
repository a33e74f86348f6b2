"""Guards cut what no policy may commit, and count it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.guards import Guards
from tests.fakes import make_hypothesis, make_token

SPEECH = VoiceActivity(True, 32_000)
ENOUGH = Evidence(
    ctc_labels=(1, 2),
    blank_label=0,
    span_end_samples=(16_000, 32_000),
    complete_word_count=4,
    has_partial_word=False,
    label_count=8,
    frame_count=200,
    voice_activity=SPEECH,
)
SILENCE = VoiceActivity(False)


def attend(evidence: Evidence, places: Sequence[int]) -> tuple[Evidence, list[list[float]]]:
    """States of 100 samples, and for each token the row that attends to the one ending there."""
    count = max([0, *places]) // 100 + 1
    spans = [100 * (state + 1) for state in range(count)]
    rows = [[float(end == place) for end in spans] for place in places]
    voice = replace(evidence.voice_activity, speech_end_sample=spans[-1])
    heard = replace(evidence, span_end_samples=spans, voice_activity=voice)
    return heard, rows


def allowed(
    evidence: Evidence,
    ids: Sequence[int],
    prefix: tuple[int, ...] = (),
    committed: int = 0,
    *,
    places: Sequence[int] | None = None,
    spoken_for_sample: int = 0,
    final: bool = False,
) -> tuple[int, dict]:
    """Each token attends to later audio than the one before, unless told otherwise."""
    guards = Guards()
    if places is None:
        places = [spoken_for_sample + 100 * (index + 1) for index in range(len(ids))]
    evidence, rows = attend(evidence, places)
    tokens = [make_token(token, attention=row) for token, row in zip(ids, rows, strict=True)]
    hypothesis = make_hypothesis(tokens, prefix=prefix)
    count, guard = guards.allow(
        evidence, hypothesis, len(ids), committed, spoken_for_sample, final=final
    )
    assert list(guards.hits) == guards.noted
    assert guard == (guards.noted[-1] if guards.noted else "")
    return count, dict(guards.hits)


def test_nothing_is_cut_from_a_plain_commit():
    """Three words for four heard pass."""
    assert allowed(ENOUGH, [5, 6, 7]) == (3, {})


@pytest.mark.parametrize(
    "change",
    [{"label_count": 1}, {"frame_count": 19}, {"voice_activity": SILENCE}],
    ids=["labels", "frames", "speech"],
)
def test_nothing_is_committed_without_evidence(change):
    """One label, 190 ms, or no speech: silence."""
    assert allowed(replace(ENOUGH, **change), [5]) == (0, {"evidence": 1})


def test_without_labels_speech_is_evidence():
    """A model without a CTC head tells no labels: enough frames of speech must do."""
    unlabelled = replace(ENOUGH, label_count=0, ctc_labels=())
    assert allowed(unlabelled, [5]) == (1, {})
    assert allowed(replace(unlabelled, voice_activity=SILENCE), [5]) == (0, {"evidence": 1})
    assert allowed(replace(unlabelled, frame_count=19), [5]) == (0, {"evidence": 1})


def test_at_most_twice_the_words_heard_plus_three():
    """One word heard allows five; two are committed already, so three more."""
    few = replace(ENOUGH, complete_word_count=1)
    assert allowed(few, [5, 6, 7, 8, 9], committed=2) == (3, {"length": 1})


LONG_ENOUGH = replace(ENOUGH, complete_word_count=40)
REPEATED = replace(LONG_ENOUGH, ctc_labels=(1, 2, 1, 2))


def test_a_loop_is_cut_at_its_fourth_turn():
    """Three repetitions of a word or two stay, across the prefix too."""
    assert allowed(REPEATED, [5, 6, 5, 6, 5, 6, 5, 6, 5]) == (6, {"loop": 1})
    assert allowed(REPEATED, [5, 5], prefix=(5, 5)) == (1, {"loop": 1})
    assert allowed(REPEATED, [5, 6, 5, 6, 5, 6, 5]) == (7, {})


@pytest.mark.parametrize(
    ("labels", "ids", "count"),
    [
        ([7, 7, 0, 7, 0, 7, 8, 9], [5, 6, 5, 6, 5, 6], 6),
        ([7, 8, 0, 7, 8, 9], [5, 5, 5], 3),
        ([7, 7, 0, 7, 8, 9], [5, 5, 5], 2),
        ([7, 8, 9, 7], [5, 6, 5, 6, 5, 7], 4),
        ([7, 8, 9, 7], [5, 6, 5, 6, 7], 5),
    ],
)
def test_nothing_is_said_thrice_that_nobody_was_heard_to_repeat(labels, ids, count):
    """A word that comes a third time is a loop, unless labels follow themselves; one may twice."""
    heard = replace(ENOUGH, ctc_labels=labels, blank_label=0)
    expected = {"loop": 1} if count < len(ids) else {}
    assert allowed(heard, ids) == (count, expected)


def test_without_labels_a_word_may_be_said_three_times():
    """Nobody knows what was repeated."""
    assert allowed(replace(ENOUGH, label_count=0, ctc_labels=()), [5, 5, 5, 5])[0] == 3


def test_figures_within_a_word_are_no_loop():
    """A number with many noughts comes in pieces of one word; nobody hears how many there are."""
    pieces = [make_token(t, starts=not i) for i, t in enumerate([5, 6, 7, 6, 7, 6, 7])]
    assert Guards().allow(ENOUGH, make_hypothesis(pieces), len(pieces), 0, 0) == (len(pieces), "")


@pytest.mark.parametrize("size", [4, 5, 8, 12, 16])
@pytest.mark.parametrize("before", [[], [90, 91, 92]])
def test_a_phrase_may_be_said_twice(size, before):
    """A third time is a loop as soon as more than half of it is there, wherever it is cut off."""
    phrase = list(range(10, 10 + size))
    twice = [*before, *phrase, *phrase]
    assert allowed(LONG_ENOUGH, twice) == (len(twice), {})
    assert allowed(LONG_ENOUGH, [*twice, *phrase[: size // 2]])[1] == {}
    for count in range(size // 2 + 1, size + 1):
        assert allowed(LONG_ENOUGH, [*twice, *phrase[:count]]) == (len(twice), {"loop": 1})
    whole = [*twice, *phrase, *phrase, 99]
    assert allowed(LONG_ENOUGH, whole) == (len(twice), {"loop": 1})


def test_a_phrase_that_is_committed_twice_is_not_said_again():
    """Nothing of the third turn is committed, even where its beginning was already."""
    phrase = (10, 11, 12, 13, 14)
    assert allowed(LONG_ENOUGH, list(phrase), prefix=phrase * 2) == (0, {"loop": 1})
    rest = list(phrase[2:])
    assert allowed(LONG_ENOUGH, rest, prefix=(*phrase * 2, *phrase[:2])) == (0, {"loop": 1})


def test_lists_and_refrains_are_no_loops():
    """What differs in a word, or comes again later, is speech."""
    one_by_one = [token for number in range(6) for token in (10, 11, 12, 20 + number)]
    assert allowed(LONG_ENOUGH, one_by_one) == (24, {})
    refrain = [10, 11, 12, 13, 14, 30, 31, 10, 11, 12, 13, 14, 40, 10, 11, 12, 13, 14]
    assert allowed(LONG_ENOUGH, refrain) == (len(refrain), {})


SENTENCE = [10, 11, 12, 13, 14]


def allowed_at_the_end(ids, places, prefix=(), spoken_for_sample=0) -> tuple[int, dict]:
    return allowed(
        REPEATED,
        ids,
        tuple(prefix),
        places=places,
        spoken_for_sample=spoken_for_sample,
        final=True,
    )


def test_a_sentence_is_not_said_again_for_the_same_audio():
    """Where its first turn was committed before, and where both come with the end."""
    heard = [100, 200, 300, 400, 500]
    assert allowed_at_the_end([*SENTENCE, *SENTENCE], heard * 2) == (5, {"echo": 1})
    assert allowed_at_the_end(SENTENCE, heard, tuple(SENTENCE), 500) == (0, {"echo": 1})
    # Another full stop, and a part of it alone.
    other = [*SENTENCE, 90, *SENTENCE[:4], 91]
    places = [*heard, 500, *heard[:4], 500]
    assert allowed_at_the_end(other, places) == (6, {"echo": 1})


@pytest.mark.parametrize(("transcript", "count"), [("no", 1), ("a", 0)])
def test_a_word_of_one_label_is_evidence(transcript: str, count: int):
    """At the utterance's end its letters count: two of them are a word."""
    heard = replace(ENOUGH, label_count=1, source_transcript=transcript)
    assert allowed(heard, [5])[0] == count


def test_the_last_words_are_not_said_again_for_the_same_audio():
    """A word or two that nothing but themselves follow; a full stop follows every sentence."""
    assert allowed_at_the_end([10, 11, 11, 11], [100, 200, 200, 100]) == (2, {"echo": 1})
    assert allowed_at_the_end([11, 12, 11], [200, 200, 200], (10, 11, 12), 200) == (
        0,
        {"echo": 1},
    )
    assert allowed_at_the_end([10, 11, 11], [100, 200, 300]) == (3, {})
    assert allowed_at_the_end([10, 90, 11, 90], [100, 200, 200, 200]) == (4, {})


def test_figures_of_a_number_may_be_alike():
    """Pieces of one word share its audio: "5,000,000" is no echo."""
    pieces = [make_token(token, starts=not index) for index, token in enumerate([5, 6, 7, 6, 7])]
    hypothesis = make_hypothesis(pieces)
    assert Guards().allow(LONG_ENOUGH, hypothesis, 5, 0, 0, final=True) == (5, "")


def test_a_phrase_is_not_said_again_in_mid_utterance():
    """What was offered at once is said in turns; a few tokens may still become others."""
    heard = [100, 200, 300, 400, 500]
    echo = {"ids": [*SENTENCE, *SENTENCE], "places": heard * 2}
    assert allowed(LONG_ENOUGH, **echo) == (5, {"echo": 1})
    few = {"ids": [10, 11, 11, 11], "places": [100, 200, 200, 200]}
    assert allowed(REPEATED, **few) == (4, {})
    assert allowed(REPEATED, **few, final=True) == (2, {"echo": 1})


def test_what_is_heard_twice_may_be_said_twice():
    """One token of it that attends to later audio is enough; so are three tokens alone."""
    heard, later = [100, 200, 300, 400, 500], [200, 300, 400, 500, 600]
    assert allowed_at_the_end([*SENTENCE, *SENTENCE], heard + later) == (10, {})
    assert allowed_at_the_end(SENTENCE, later, tuple(SENTENCE), 500) == (5, {})
    assert allowed_at_the_end([*SENTENCE, 90, 10, 11, 12], [*heard, 500, 100, 200, 300]) == (
        9,
        {},
    )
    assert allowed_at_the_end([], []) == (0, {})


@given(st.lists(st.integers(10, 12), max_size=6), st.lists(st.integers(10, 12), max_size=10))
def test_an_echo_is_any_phrase_of_before_or_the_last_words_once_more(prefix, ids):
    """As it is found by looking at every place before."""
    tokens = [*prefix, *ids]

    def is_echo(place: int) -> bool:
        coming = tokens[place:]
        phrases = [tokens[start : start + 4] for start in range(place - 3)]
        turns = [tokens[place - size : len(tokens) - size] for size in range(1, min(4, place + 1))]
        fits = [turn for size, turn in enumerate(turns, 1) if size <= len(coming)]
        return coming[:4] in phrases or coming in fits

    echoes = [index for index in range(len(ids)) if is_echo(len(prefix) + index)]
    kept, hits = allowed_at_the_end(ids, [100] * len(ids), tuple(prefix), 100)
    assume("loop" not in hits)
    assert kept == (echoes[0] if echoes else len(ids))
