from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from earvoice.encoder.session import EncodeSession
from earvoice.runtime.errors import (
    InvalidAudioError,
    InvalidFieldError,
    ModelMismatchError,
    OutOfOrderError,
    SessionTooLongError,
)
from tests.fakes import ENCODER_DESCRIPTION, FakeNetwork
from tests.requests import audio, finish, open_session, reset


def silence(milliseconds: int) -> bytes:
    return bytes(milliseconds * 32)


def loud(milliseconds: int) -> bytes:
    return np.full(milliseconds * 16, 30000, "<i2").tobytes()


@pytest.fixture
def network():
    return FakeNetwork()


@pytest.fixture
def session(network):
    opened = EncodeSession(network, max_utterance_ms=10_000)
    opened.apply(open_session(enable_source_transcript=True))
    return opened


def test_open_describes_the_model(network):
    """Open answers with the model served, and takes its hash or none."""
    for model_hash in ("", ENCODER_DESCRIPTION.hash):
        answer = EncodeSession(network, 10_000).apply(open_session(model_hash=model_hash))
        assert answer.opened.model == ENCODER_DESCRIPTION


def test_open_comes_first_and_once(network, session):
    """Any command before open, and a second open, are out of order."""
    for command in (audio(1), finish(1, 0), reset(0, 0)):
        with pytest.raises(OutOfOrderError):
            EncodeSession(network, 10_000).apply(command)
    with pytest.raises(OutOfOrderError):
        session.apply(open_session())


def test_another_models_hash_is_refused(network):
    """A caller who expects other weights is told which are served."""
    with pytest.raises(ModelMismatchError, match=ENCODER_DESCRIPTION.hash):
        EncodeSession(network, 10_000).apply(open_session(model_hash="another"))


@pytest.mark.parametrize("revision", [-1, 0, 2])
def test_revisions_count_up_by_one(session, revision):
    """The first revision of an utterance is 1; any other number is out of order."""
    with pytest.raises(OutOfOrderError, match="allowed: 1"):
        session.apply(audio(revision))


def test_an_utterance_ends_once(session):
    """After finish only reset may come, and it starts the revisions anew."""
    session.apply(audio(1, silence(100)))
    session.apply(finish(2, 1600))
    for command in (audio(3), finish(3, 1600)):
        with pytest.raises(OutOfOrderError):
            session.apply(command)
    assert session.apply(reset(1, 1600)).reset_done.utterance == 1
    states = session.apply(audio(1, silence(100))).encoded.states
    assert (states.states_id.utterance, states.states_id.revision, states.final) == (1, 1, False)


@pytest.mark.parametrize("end_sample", [-1, 1599, 3201])
def test_the_end_lies_within_the_utterance(session, end_sample):
    """An end before the utterance's start or after what was received is refused."""
    session.apply(reset(0, 1600))
    with pytest.raises(InvalidFieldError, match=r"1600 .* to 3200"):
        session.apply(finish(1, end_sample, silence(100)))


@pytest.mark.parametrize("command", [reset(-1, 0), reset(0, -1), reset(0, 2**63 - 1)])
def test_reset_takes_no_impossible_positions(session, command):
    """Utterances and positions count from 0, and 64 bits must hold where the utterance ends."""
    with pytest.raises(InvalidFieldError):
        session.apply(command)


def test_broken_frames_are_refused(session):
    """Half a sample never shifts all samples after it: it is an error."""
    with pytest.raises(InvalidAudioError):
        session.apply(audio(1, b"abc"))


def test_an_utterance_is_bounded(session):
    """The sample that makes the utterance too long is refused, whatever the message's size."""
    session.apply(audio(1, silence(10_000)))
    with pytest.raises(SessionTooLongError, match=r"10001 ms long; allowed: 10000 ms"):
        session.apply(audio(2, bytes(2)))


def test_too_little_audio_gives_no_states(session, network):
    """Less than one analysis window is no error, has no states and is never encoded."""
    evidence = session.apply(audio(1, silence(24))).encoded.evidence
    assert not evidence.ctc_labels
    assert evidence.last_label_end_sample == 0
    assert session.apply(finish(2, 0)).encoded.evidence.frame_count == 0
    assert network.encoded_frames == []


def test_silence_is_skipped_until_speech_is_found(network):
    """Asked for, the network rests, at the end too; it then hears all from the beginning on."""
    quiet, spoken = (EncodeSession(network, 10_000) for _ in range(2))
    for opened in (quiet, spoken):
        opened.apply(open_session(skip_silence=True, enable_source_transcript=True))
        encoded = opened.apply(audio(1, silence(800))).encoded
        assert (encoded.states.state_count, encoded.states.data) == (0, b"")
        assert not encoded.evidence.voice_activity.has_speech
        assert encoded.evidence.frame_count == 78
    assert network.encoded_frames == []
    assert spoken.apply(audio(2, loud(200))).encoded.evidence.ctc_labels
    assert spoken.apply(audio(3, silence(100))).encoded.evidence.ctc_labels
    assert spoken.apply(finish(4, 17_600)).encoded.evidence.source_transcript
    assert network.encoded_frames == [98, 108]
    encoded = quiet.apply(finish(2, 12_800)).encoded
    assert (encoded.states.state_count, encoded.states.final) == (0, True)
    assert (encoded.evidence.frame_count, encoded.evidence.source_transcript) == (78, "")
    assert network.encoded_frames == [98, 108]


def test_unchanged_audio_is_not_encoded_again(session, network):
    """Zero new samples are answered from what is known, finish included."""
    session.apply(audio(1, silence(100)))
    session.apply(audio(2))
    session.apply(finish(3, 1600))
    assert network.encoded_frames == [8]


def test_an_end_lets_all_be_heard(network):
    """What a growing utterance has kept of its states is no part of the final ones."""
    encode = network.encode
    network.open_encoding = lambda: lambda features: replace(encode(features), is_whole=False)
    session = EncodeSession(network, 10_000)
    session.apply(open_session())
    session.apply(audio(1, silence(100)))
    session.apply(audio(2))
    session.apply(finish(3, 1600))
    assert network.encoded_frames == [8, 8]


def test_finish_in_the_past_hears_what_it_would_have_heard(network):
    """Audio after the end position changes nothing but the memory it took."""
    data = loud(200) + silence(200) + loud(400)
    whole, cut = (EncodeSession(network, 10_000) for _ in range(2))
    for opened in (whole, cut):
        opened.apply(open_session())
    whole.apply(audio(1, data))
    past = whole.apply(finish(2, 400 * 16)).encoded
    alone = cut.apply(finish(1, 400 * 16, data[: 400 * 32])).encoded
    assert past.evidence == alone.evidence
    assert past.states.data == alone.states.data
    assert past.states.span_end_samples == alone.states.span_end_samples
    assert past.states.span_end_samples[-1] == 400 * 16


def test_the_transcript_comes_with_the_end(session):
    """A revision has no transcript; the final one has it, since it was asked for."""
    assert session.apply(audio(1, silence(200))).encoded.evidence.source_transcript == ""
    assert session.apply(finish(2, 3200)).encoded.evidence.source_transcript == "0 1 2 3"


def test_a_transcript_so_far_comes_with_audio_where_it_is_asked_for(session, network):
    """And not with the end, which has the whole one."""
    assert session.apply(audio(1, silence(200))).encoded.evidence.partial_transcript == ""
    asked = EncodeSession(network, max_utterance_ms=10_000)
    asked.apply(open_session(enable_partial_transcript=True))
    assert asked.apply(audio(1, silence(200))).encoded.evidence.partial_transcript == "0 1 2 3"
    evidence = asked.apply(finish(2, 3200)).encoded.evidence
    assert (evidence.partial_transcript, evidence.source_transcript) == ("", "")


def test_positions_start_at_the_utterance(session):
    """Spans, labels and speech are counted from the session's start, not the utterance's."""
    session.apply(reset(3, 50_000))
    encoded = session.apply(audio(1, silence(320) + loud(320))).encoded
    ends, evidence = list(encoded.states.span_end_samples), encoded.evidence
    assert ends[0] == 50_000 + 640
    assert ends == sorted(ends)
    assert evidence.voice_activity.speech_start_sample == 50_000 + 320 * 16
    assert evidence.voice_activity.speech_end_sample == 50_000 + 640 * 16
    assert evidence.last_label_end_sample == ends[-2]


def test_the_session_counts_audio_and_revisions(session):
    """The log line's numbers cover all utterances."""
    session.apply(audio(1, silence(500)))
    session.apply(reset(1, 8000))
    session.apply(audio(1, silence(250)))
    assert session.revision_count == 2
    assert session.audio_seconds == 0.75
