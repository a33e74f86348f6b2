"""A session whose source is text: words in, states and exact counts out."""

from __future__ import annotations

import numpy as np
import pytest

from earvoice.api.v1 import types_pb2
from earvoice.client.text import write_words
from earvoice.encoder.session import EncodeSession
from earvoice.encoder.text import read_words
from earvoice.runtime.errors import InvalidAudioError, InvalidFieldError, SessionTooLongError
from tests.fakes import ENCODER_DESCRIPTION, FakeNetwork
from tests.requests import audio, finish, open_session, reset

TEXT = {"encoding": types_pb2.AUDIO_ENCODING_WORDS, "rate_hz": 4}


class LetterNetwork:
    """A state a letter, and one more for the end of the sentence."""

    description = ENCODER_DESCRIPTION
    dimension = 1

    def encode_words(self, words: tuple[str, ...], *, ended: bool) -> tuple[bytes, tuple[int, ...]]:
        places = [place for place, word in enumerate(words, 1) for _ in word]
        places += places[-1:] if ended else []
        return np.arange(len(places), dtype="<f4").tobytes(), tuple(places)


@pytest.fixture
def session():
    opened = EncodeSession(LetterNetwork(), max_utterance_ms=1000)
    opened.apply(open_session(**TEXT, enable_source_transcript=True))
    return opened


def test_states_end_with_their_words(session):
    """Every letter of a word covers it; the words are counted and none is in parts."""
    encoded = session.apply(audio(1, write_words("to be"))).encoded
    assert list(encoded.states.span_end_samples) == [1, 1, 2, 2]
    assert encoded.states.state_count == 4
    evidence = encoded.evidence
    assert (evidence.complete_word_count, evidence.has_partial_word) == (2, False)
    assert evidence.frame_count == 50
    assert not evidence.ctc_labels
    assert evidence.voice_activity.has_speech
    assert evidence.voice_activity.speech_end_sample == 2


def test_a_sentence_ends_where_its_line_does(session):
    """Its end is a pause of no time; finished there, later words were never received."""
    encoded = session.apply(audio(1, write_words("to be\nor"))).encoded
    pauses = encoded.evidence.voice_activity.pauses
    assert [(pause.start_sample, pause.end_sample) for pause in pauses] == [(2, 2)]
    done = session.apply(finish(2, 2)).encoded
    assert list(done.states.span_end_samples) == [1, 1, 2, 2, 2]
    assert done.states.final
    assert done.evidence.source_transcript == "to be"
    session.apply(reset(1, 2))
    again = session.apply(audio(1, write_words("or"))).encoded
    assert list(again.states.span_end_samples) == [3, 3]


def test_without_a_word_there_are_no_states(session):
    """Neither speech nor states."""
    done = session.apply(finish(1, 0)).encoded
    assert done.states.state_count == 0
    assert not done.evidence.voice_activity.has_speech


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"word", "4 bytes of audio are not whole frames of 64 bytes"),
        (bytes(64), r"word 0 of the message is b''; allowed: UTF-8 without blanks"),
        (write_words("fine") + b"to be".ljust(64, b"\0"), "word 1 of the message is b'to be'"),
        (b"\xff".ljust(64, b"\0"), r"word 0 of the message is b'\\xff'"),
        (b"\n".ljust(64, b"\0"), "word 0"),
    ],
)
def test_what_is_no_word_is_refused(data, message):
    """The message names the word and what is allowed."""
    with pytest.raises(InvalidAudioError, match=message):
        read_words(data)


def test_sound_and_words_are_not_mixed_up():
    """A model that reads takes no sound, one that hears no words; words have one rate."""
    with pytest.raises(InvalidFieldError, match=r"audio_format.encoding = 'linear16'.*words"):
        EncodeSession(LetterNetwork(), 1000).apply(open_session())
    with pytest.raises(InvalidFieldError, match=r"audio_format.encoding = 'words'.*sound"):
        EncodeSession(FakeNetwork(), 1000).apply(open_session(**TEXT))
    with pytest.raises(InvalidFieldError, match=r"sample_rate_hertz = 16000 .*4 to 4"):
        EncodeSession(LetterNetwork(), 1000).apply(open_session(**TEXT | {"rate_hz": 16000}))
    with pytest.raises(InvalidFieldError, match=r"channel_count = 2 .*1 to 1"):
        EncodeSession(LetterNetwork(), 1000).apply(open_session(**TEXT, channels=2))


def test_an_utterance_is_limited(session):
    """A second of four words."""
    session.apply(audio(1, write_words("a b c d")))
    with pytest.raises(SessionTooLongError, match="1250 ms"):
        session.apply(audio(2, write_words("e")))
