"""Words are as sure as the model is, and what it is not sure of is not said."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policies import Edatt
from earvoice.policies.base import Token
from earvoice.policy.event import SessionTotals, TailChanged, UtteranceEnded, WordsReleased
from earvoice.policy.stream_options import CommitUnit, Confidence, Endpointing
from earvoice.policy.utterance import (
    AGREEING_LIKENESS,
    DIFFERING_LIKENESS,
    OPENING_LIKENESS,
    agreement,
    likeness,
)
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.policy.wire.events import ResponseWriter
from earvoice.policy.words import CommitTime, StageTimings, Word, join_pieces
from earvoice.runtime.errors import InvalidFieldError
from tests.fakes import RATE_HERTZ, ScriptedDecoder, ScriptedEncoder, make_token
from tests.unit.policy.every_policy import each_policy
from tests.unit.policy.running import (
    MAX_SAMPLES,
    MODEL,
    items_of,
    run_session,
    seconds,
    voice_with_pauses,
    with_options,
)
from tests.unit.policy.test_laws import options_with, unstable_word
from tests.unit.policy.test_resume_laws import check_every_interruption

NOW = CommitTime(0.0, 0.0, StageTimings(*[0.0] * 11))
PAUSES = Endpointing(600, 5000)


def word(text: str, log_probability: float, *, starts: bool = True) -> Word:
    return replace(Word(text.encode(), starts, 0, 0, 0, NOW), log_probability=log_probability)


def unsure_word(seed: int, *, every: int = 2):
    """Changing words; in every so many utterances, the model guesses."""
    changing = unstable_word(seed)

    def say(number: int, states: int):
        guesses = (number // 3 + seed) % every == 0
        lost = -3.0 if guesses else -0.01
        return [replace(token, log_probability=lost) for token in changing(number, states)]

    return say


def test_without_calibration_confidence_is_the_probability():
    """Scales of 1 and an offset of 0 change nothing."""
    assert Confidence().of(-0.5) == pytest.approx(0.6065, abs=1e-4)
    assert Confidence().of(0.0) == pytest.approx(1.0)
    assert Confidence().of(-1000.0) == pytest.approx(0.0)


@given(
    unsure_scale=st.floats(0, 100),
    sure_scale=st.floats(0, 100),
    offset=st.floats(-100, 100),
    one=st.floats(-200, 0),
    other=st.floats(-200, 0),
)
def test_confidence_is_a_share_that_never_falls_with_the_probability(
    unsure_scale, sure_scale, offset, one, other
):
    """Whatever was calibrated: from 0 to 1, and in the order of the probabilities."""
    confidence = Confidence(unsure_scale, sure_scale, offset)
    low, high = sorted((one, other))
    assert 0 <= confidence.of(low) <= confidence.of(high) <= 1


def test_a_word_is_as_sure_as_all_its_pieces_and_nobody_hears_a_comma():
    """The pieces' logarithms add up; punctuation counts only where there is nothing else."""
    pieces = [word("Haus", -0.1), word("tür", -0.2, starts=False), word(",", -5.0, starts=False)]
    (joined,), _ = join_pieces(pieces, flush=True)
    assert (joined.text, joined.log_probability) == ("Haustür,", pytest.approx(-0.3))
    (mark,), _ = join_pieces(pieces[2:], flush=True)
    assert mark.log_probability == -5.0
    (quoted,), _ = join_pieces([word("»", -0.1), word("ja", -0.3, starts=False)], flush=True)
    assert quoted.log_probability == -0.3


@each_policy
@given(
    seed=st.integers(0, 100),
    samples=st.integers(0, MAX_SAMPLES),
    least=st.floats(0.01, 1.0),
    unit=st.sampled_from(get_args(CommitUnit)),
)
def test_an_utterance_is_told_whole_or_not_at_all(parameters, seed, samples, least, unit):
    """Holding back changes no text: each utterance's is what it was, later, or none and told so."""
    options = options_with(parameters, commit_unit=unit, endpointing=PAUSES)

    def run(least: float):
        return run_session(
            [bytes(samples * 2)] if samples else [],
            replace(options, confidence=Confidence(least=least)),
            ScriptedEncoder(voice=voice_with_pauses),
            ScriptedDecoder(word=unsure_word(seed)),
        )

    free, held = run(0.0), run(least)
    ends = [event for event in held if isinstance(event, UtteranceEnded)]
    assert [(end.start_sample, end.end_sample) for end in ends] == [
        (end.start_sample, end.end_sample) for end in free if isinstance(end, UtteranceEnded)
    ]
    for end in ends:
        said, kept = (
            [item for item in items_of(events) if item.utterance == end.utterance]
            for events in (free, held)
        )
        if end.not_understood is None:
            assert [item.utf8 for item in kept] == [item.utf8 for item in said]
            pairs = list(zip(said, kept, strict=True))
            assert all(late.delay_samples >= soon.delay_samples for soon, late in pairs)
        else:
            assert not kept
            assert said
            first, last = end.not_understood
            assert first == min(item.source_start_sample for item in said)
            assert last == max(item.source_end_sample for item in said)
    totals = held[-1]
    assert isinstance(totals, SessionTotals)
    assert totals.utterances_not_understood == sum(end.not_understood is not None for end in ends)


@each_policy
@given(
    seed=st.integers(0, 100),
    samples=st.integers(6000, MAX_SAMPLES),
    least=st.floats(0.01, 1.0),
    unit=st.sampled_from(get_args(CommitUnit)),
    data=st.data(),
)
def test_an_interrupted_session_understands_the_same(parameters, seed, samples, least, unit, data):
    """What is held back when a session is lost is held back, or released, where it goes on."""
    options = options_with(
        parameters, commit_unit=unit, endpointing=PAUSES, confidence=Confidence(least=least)
    )
    check_every_interruption(
        [bytes(samples * 2)], options, lambda: ScriptedDecoder(word=unsure_word(seed)), data
    )


@each_policy
@given(
    seed=st.integers(0, 100),
    samples=st.integers(6000, MAX_SAMPLES),
    letters=st.text("abc", min_size=1, max_size=60),
    unit=st.sampled_from(get_args(CommitUnit)),
    data=st.data(),
)
def test_an_interrupted_session_still_hears_alike(parameters, seed, samples, letters, unit, data):
    """Utterances are opened, or not, by what the encoder hears, before an interruption or after."""
    changing = unstable_word(seed)

    def say(number: int, states: int):
        tokens = changing(number, states)
        return [replace(t, text=2 * chr(ord("a") + t.token_id % 3).encode()) for t in tokens]

    confidence = Confidence(least=0.5, by_agreement=True)
    options = options_with(parameters, commit_unit=unit, endpointing=PAUSES, confidence=confidence)
    model = types_pb2.ModelDescription(translates_text=True)
    model.MergeFrom(MODEL)
    check_every_interruption(
        [bytes(samples * 2)],
        options,
        lambda: ScriptedDecoder(word=say),
        data,
        transcript=letters,
        model=model,
    )


def spoken(*probabilities: float):
    """A word for each probability, each attending to its own audio."""

    def say(number: int, states: int):
        place = min(number * 4 + 2, states - 1)
        row = tuple(float(i == place) for i in range(states))
        probability = probabilities[min(number, len(probabilities) - 1)]
        return [make_token(10 + number, attention=row, probability=probability)]

    return say


def only_the_first(probability: float):
    """A word, and none after it."""
    say = spoken(probability)
    return lambda number, states: [] if number else say(number, states)


GROWING = spoken(0.2, 0.2, 0.2, 0.9)


def test_words_wait_for_the_mean_of_all_of_them():
    """Three of 0.2 are not understood; with four of 0.9 they are, and all leave together."""
    options = with_options(confidence=Confidence(least=0.6), sends_interim_results=True)
    decoder = ScriptedDecoder(word=GROWING)
    events = run_session([seconds(6)], options, decoder=decoder)
    first = next(event for event in events if isinstance(event, WordsReleased))
    confidences = [item.confidence for item in first.items]
    assert confidences[0] == pytest.approx(0.2)
    assert sum(confidences) / len(confidences) >= 0.6
    assert first.items[0].hold_ms > 0
    assert first.items[0].stages.total_ms == pytest.approx(
        sum(getattr(first.items[0].stages, name) for name in PARTS)
    )
    free = run_session([seconds(6)], with_options(), decoder=ScriptedDecoder(word=GROWING))
    assert [item.text for item in items_of(events)] == [item.text for item in items_of(free)]
    assert items_of(free)[0].delay_samples < first.items[0].delay_samples


PARTS = (
    "merge_wait_ms",
    "previous_segment_wait_ms",
    "encoder_queue_ms",
    "encoder_compute_ms",
    "encoder_network_ms",
    "decoder_queue_ms",
    "decoder_compute_ms",
    "decoder_network_ms",
    "decision_ms",
    "word_hold_ms",
)


@pytest.mark.parametrize(
    ("written", "transcript", "alike"),
    [
        ("The ladies.", "the lades", True),
        ("Okay.", "okey", False),
        ("Okay, then.", "okey then", True),
        ("That slide.", "thats right", False),
        ("Your beat.", "b lh", False),
        ("No.", "", False),
        ("-", "", False),
    ],
)
def test_letters_that_both_have_heard(written: str, transcript: str, *, alike: bool):
    """Blanks, marks and case are not heard; of words that are not sure at all four fifths are."""
    words = [word(text, -3.0) for text in written.split()]
    assert (likeness(words, transcript, whole=True) >= AGREEING_LIKENESS) == alike


@pytest.mark.parametrize(
    ("written", "transcript", "unlike"),
    [
        ("He had paid", "he had bade her six months", False),
        ("Mr. Swift's eyes", "mr sweps eyes twinkle", False),
        ("Hello, we can", "a we canishi b hiflica", True),
        ("It costs $1,250.", "it costs one thousand two hundred", False),
        ("In 1961", "in nineteen sixty one", False),
        ("12", "twelve", False),
        ("12", "", True),
        ("Haven't seen it since not yet", "haenon notgacaager fir theyo theyo foodona", True),
        ("cool. If nada is my", "io ftill", True),
    ],
)
def test_so_much_of_the_transcript_as_there_are_words_is_compared(
    written: str, transcript: str, *, unlike: bool
):
    """Words come later than the encoder's labels."""
    words = [word(text, -0.1) for text in written.split()]
    assert (likeness(words, transcript) < OPENING_LIKENESS) == unlike


@pytest.mark.parametrize(
    ("written", "transcript", "agrees"),
    [
        ("Bye.", "f hie", True),
        ("Two.", "t", False),
        ("Hi.", "", False),
        ("-", "f", False),
        ("A regular one", "f hie fol an dre", False),
        ("A regular one", "a reguler won", True),
    ],
)
def test_of_few_letters_it_is_enough_that_as_many_are_heard(
    written: str, transcript: str, *, agrees: bool
):
    words = [word(text, -0.1) for text in written.split()]
    assert (agreement(words, transcript) >= DIFFERING_LIKENESS) == agrees


def test_a_letter_in_two_pieces_is_heard_as_one():
    """Pieces are released one by one where tokens are committed."""
    pieces = [Word(b"k\xc3", True, 0, 0, 0, NOW), Word(b"\xbcche", False, 0, 0, 0, NOW)]
    assert likeness(pieces, "k\u00fcche") == 1.0


@pytest.mark.parametrize(
    ("texts", "probability", "are_captions", "count"),
    [
        (("he", "art"), 0.1, True, 2),
        (("un", "told"), 0.1, True, 0),
        (("hea", "xy"), 0.1, True, 0),
        (("hea", "xy"), 0.4, True, 2),
        (("he", "xyz"), 0.4, True, 0),
        (("he", "art"), 0.1, False, 0),
    ],
)
def test_what_encoder_and_decoder_both_hear_is_understood(
    texts: tuple[str, str], probability: float, count: int, *, are_captions: bool
):
    """However unsure the model is of it, and sooner if it is less so: the encoder hears "heard"."""
    options = with_options(confidence=Confidence(least=0.5, by_agreement=are_captions))

    def say(number: int, states: int):
        row = [1.0] * states
        return [make_token(10 + number, texts[number], attention=row, probability=probability)]

    events = run_session([seconds(0.4)], options, decoder=ScriptedDecoder(word=say))
    assert [item.confidence for item in items_of(events)] == pytest.approx([probability] * count)


@pytest.mark.parametrize(
    ("partial", "count"), [("he art and", 2), ("xyzxyzxyz", 0), ("", 2)], ids=repr
)
def test_what_encoder_and_decoder_hear_unlike_is_not_understood(partial: str, count: int):
    """However sure the model is of it; where the encoder tells no transcript, that is enough.

    At the end the encoder has heard "heard", which is too little for the rest.
    """
    options = with_options(confidence=Confidence(least=0.5, by_agreement=True))

    def say(number: int, states: int):
        row = [float(state == 4 * number) for state in range(states)]
        text = ("he", "art", "xx", "y" * 20)[number]
        return [make_token(10 + number, text, attention=row, probability=0.9)]

    encoder = ScriptedEncoder(partial_transcript=partial)
    events = run_session([seconds(1.2)], options, encoder, ScriptedDecoder(word=say))
    assert len(items_of(events)) == count


@pytest.mark.parametrize(
    ("texts", "count"), [(("al", "so", "jim", "beamish"), 2), (("al", "so", "jim"), 3)]
)
def test_an_utterance_goes_on_only_as_long_as_the_encoder_hears_it(
    texts: tuple[str, ...], count: int
):
    """Another language may begin with a word that sounds like one of ours."""
    options = with_options(confidence=Confidence(least=0.5, by_agreement=True))

    def say(number: int, states: int):
        if number >= len(texts):
            return []
        row = [float(state == 4 * number) for state in range(states)]
        return [make_token(10 + number, texts[number], attention=row, probability=0.9)]

    encoder = ScriptedEncoder(partial_transcript="also")
    events = run_session([seconds(1.6)], options, encoder, ScriptedDecoder(word=say))
    assert len(items_of(events)) == count
    (end,) = (event for event in events if isinstance(event, UtteranceEnded))
    assert (end.not_understood is not None) == (count < len(texts))


def test_what_the_encoder_hears_no_more_at_its_end_is_not_understood():
    """Words that were held back for being unlike it are not let go when it hears nothing."""

    class ChangingItsMind(ScriptedEncoder):
        async def encode(self, audio: bytes, end_sample: int | None = None):
            self.hears_labels = end_sample is None
            return await super().encode(audio, end_sample)

    def say(number: int, states: int):
        row = [float(state == 4 * number) for state in range(states)]
        return [make_token(10 + number, "abcd"[number], attention=row, probability=0.9)]

    options = with_options(confidence=Confidence(least=0.5, by_agreement=True))
    for partial, count in (("xyzxyzxyz", 0), ("abcd", 2)):
        encoder = ChangingItsMind(partial_transcript=partial)
        events = run_session([seconds(1.2)], options, encoder, ScriptedDecoder(word=say))
        assert len(items_of(events)) == count


def test_nothing_is_shown_of_what_is_not_understood():
    """No word, no tail: only that something was said, and where."""
    options = with_options(confidence=Confidence(least=0.5), sends_interim_results=True)
    events = run_session([seconds(4)], options, decoder=ScriptedDecoder(word=spoken(0.3)))
    assert not items_of(events)
    assert not any(isinstance(event, TailChanged) for event in events)
    (end,) = (event for event in events if isinstance(event, UtteranceEnded))
    response = ResponseWriter(options).response(end)
    told = response.end_of_utterance.not_understood
    assert 0 <= told.start_sample < told.end_sample <= 4 * RATE_HERTZ
    assert events[-1].utterances_not_understood == 1
    free = run_session([seconds(4)], with_options(), decoder=ScriptedDecoder(word=spoken(0.3)))
    assert (
        not ResponseWriter(options).response(free[-2]).end_of_utterance.HasField("not_understood")
    )


def test_one_sure_word_opens_no_utterance():
    """It waits for the next; a word that stays alone is judged at the end."""
    options = with_options(confidence=Confidence(least=0.5))
    unsure = run_session([seconds(6)], options, decoder=ScriptedDecoder(word=spoken(0.9, 0.05)))
    assert not items_of(unsure)
    for probability, count in ((0.9, 1), (0.3, 0)):
        decoder = ScriptedDecoder(word=only_the_first(probability))
        events = run_session([seconds(2)], options, decoder=decoder)
        assert len(items_of(events)) == count


def test_an_utterance_once_understood_stays_so():
    """What follows is released at once, however unsure."""
    options = with_options(confidence=Confidence(least=0.6))
    events = run_session([seconds(8)], options, decoder=ScriptedDecoder(word=spoken(0.9, 0.9, 0.1)))
    free = run_session(
        [seconds(8)], with_options(), decoder=ScriptedDecoder(word=spoken(0.9, 0.9, 0.1))
    )
    delays = [[item.delay_samples for item in items_of(run)] for run in (events, free)]
    assert delays[0] == delays[1]


def config(**changes) -> public_pb.StreamingConfig:
    return public_pb.StreamingConfig(
        audio_encoding=types_pb2.AUDIO_ENCODING_LINEAR16, sample_rate_hertz=16_000, **changes
    )


CALIBRATED = types_pb2.ModelDescription()
CALIBRATED.CopyFrom(MODEL)
CALIBRATED.confidence_map.CopyFrom(
    types_pb2.ConfidenceMap(unsure_scale=0.5, sure_scale=0.7, offset=-0.25)
)
CALIBRATED.default_min_confidence = 0.4
CALIBRATED.target_language_codes.append(CALIBRATED.source_language_code)
CAPTIONS = {"target_language_codes": [CALIBRATED.source_language_code]}


def test_the_model_says_what_is_understood_and_a_stream_may_say_otherwise():
    """Defaults are the model's; 0 is a choice; without guards nothing is held back."""
    captions = config(**CAPTIONS)
    expected = Confidence(0.5, 0.7, -0.25, 0.4, by_agreement=True)
    assert stream_options(captions, CALIBRATED).confidence == expected
    assert stream_options(config(min_confidence=0, **CAPTIONS), CALIBRATED).confidence.least == 0
    unguarded = config(disable_guards=True, **CAPTIONS)
    assert stream_options(unguarded, CALIBRATED).confidence.least == 0
    asked = config(disable_guards=True, min_confidence=0.9, **CAPTIONS)
    chosen = stream_options(asked, CALIBRATED)
    assert chosen.confidence.least == 0.9
    assert stream_options(config(), MODEL).confidence == Confidence()
    assert effective_config(chosen, CALIBRATED).min_confidence == 0.9


def test_a_translations_own_words_are_judged_only_where_that_is_asked_for():
    """The threshold was fitted to words as spoken: those that it translates, if they are told."""
    translation = config(target_language_codes=["de"])
    telling = types_pb2.ModelDescription(translates_text=True)
    telling.MergeFrom(CALIBRATED)
    for model, least in ((CALIBRATED, 0.0), (telling, 0.4)):
        options = stream_options(translation, model)
        assert options.confidence.least == least
        assert options.confidence.by_agreement == model.translates_text
        assert stream_options(effective_config(options, model), model) == options
    translation.min_confidence = 0.3
    for model in (CALIBRATED, telling):
        assert stream_options(translation, model).confidence.least == 0.3


@pytest.mark.parametrize(
    ("own", "heard", "is_understood"),
    [(0.1, 0.9, True), (0.9, 0.1, False), (0.9, None, True), (0.1, None, False)],
)
def test_a_translation_is_understood_as_what_it_translates_is(
    own: float, heard: float | None, *, is_understood: bool
):
    """However sure of itself it is; without that its own words are judged, if they are to be."""

    def said(states: int):
        return [make_token(30 + number, probability=heard or 0) for number in range(states // 4)]

    options = with_options(confidence=Confidence(least=0.5))
    decoder = ScriptedDecoder(word=spoken(own), source=said if heard else None)
    events = run_session([seconds(4)], options, decoder=decoder)
    assert bool(items_of(events)) == is_understood
    (end,) = (event for event in events if isinstance(event, UtteranceEnded))
    assert bool(end.not_understood) != is_understood


def test_one_word_that_is_translated_opens_no_utterance():
    """Nor one and the beginning of another, nor none: the next is awaited."""

    def said(states: int):
        end = Token(2, b"", False, ())
        return [*[make_token(30 + n, probability=0.9) for n in range(2)][: states // 20], end]

    options = with_options(confidence=Confidence(least=0.5))
    decoder = ScriptedDecoder(word=spoken(0.9), source=said)
    (first, *_) = items_of(run_session([seconds(4)], options, decoder=decoder))
    assert first.delay_samples == 4 * RATE_HERTZ


def test_captions_are_a_target_like_any_other():
    """The speaker's own language, with a region or without, of a model that writes it."""
    model = types_pb2.ModelDescription()
    model.CopyFrom(CALIBRATED)
    del model.target_language_codes[:]
    model.target_language_codes.extend(("de", "en"))
    for tag in ("en", "en-GB"):
        asked = config(source_language_code="en", target_language_codes=[tag])
        assert stream_options(asked, model).target_language_code == "en"


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_confidence_that_is_no_share_is_refused(value):
    """By name, value and range."""
    with pytest.raises(InvalidFieldError, match="min_confidence"):
        stream_options(config(min_confidence=value), MODEL)


def test_early_ends_are_held_back_too():
    """A policy that ends its sentence early commits what nobody sees until it is understood."""
    options = with_options(
        policy=Edatt(alpha=0.5, lambda_states=2, attention_layer=1, allow_early_end=True),
        confidence=Confidence(least=0.5),
    )
    events = run_session([seconds(6)], options, decoder=ScriptedDecoder(word=spoken(0.3)))
    assert not items_of(events)
    assert all(end.not_understood for end in events if isinstance(end, UtteranceEnded))
    assert events[-1].utterances_not_understood > 0


def test_a_translation_that_ends_early_is_judged_by_all_that_it_translates():
    """Its last segment has no hypothesis: the one word of the text was said to its end."""
    options = with_options(
        policy=Edatt(alpha=0.5, lambda_states=2, attention_layer=1, allow_early_end=True),
        confidence=Confidence(least=0.5),
    )
    decoder = ScriptedDecoder(word=spoken(0.3), source=lambda _: [make_token(30, probability=0.95)])
    events = run_session([seconds(6)], options, decoder=decoder)
    assert items_of(events)
    assert events[-1].utterances_not_understood == 0


def test_confidences_of_all_items_are_on_the_wire():
    """One for each, as the model's map has it."""
    options = with_options(confidence=Confidence(2.0, 1.0, 0.5))
    events = run_session([seconds(5)], options, decoder=ScriptedDecoder(word=spoken(0.3, 0.8)))
    writer = ResponseWriter(options)
    items = itertools.chain.from_iterable(
        writer.response(event).committed.items
        for event in events
        if isinstance(event, WordsReleased)
    )
    told = [item.confidence for item in items]
    assert told[0] == pytest.approx(Confidence(2.0, 1.0, 0.5).of(-1.2039728), abs=1e-5)
    assert len(told) == len(items_of(events)) > 1
