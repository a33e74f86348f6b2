"""Utterances end at pauses, or at the best place before they grow too long."""

from __future__ import annotations

from dataclasses import replace

from earvoice.policy.endpoint import EndCause, Endpoint, Endpointer
from earvoice.policy.evidence import Evidence, VoiceActivity

SECOND = 8000
ENDPOINTER = Endpointer(SECOND, pause_ms=600)


def evidence(voice: VoiceActivity, last_label: int = 0, labels=(), spans=()) -> Evidence:
    return Evidence(labels, 99, spans, 3, False, 6, last_label, 100, voice)


def test_a_pause_ends_the_utterance_in_its_middle():
    """600 ms of quiet after 2 s of speech: the utterance ends 300 ms into it."""
    heard = evidence(VoiceActivity(True, 0, 2 * SECOND), last_label=SECOND)
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 4799, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 4800, 0) == Endpoint(
        2 * SECOND + 2400, EndCause.PAUSE
    )


def test_labels_hold_a_pause_open():
    """Words that only the CTC head hears are not cut off."""
    spans = [2 * SECOND, int(2.5 * SECOND), 4 * SECOND]
    heard = evidence(VoiceActivity(True, 0, 2 * SECOND), labels=(1, 2, 99), spans=spans)
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 4800, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, int(2.5 * SECOND) + 4800, 0) == Endpoint(
        int(2.5 * SECOND) + 2400, EndCause.PAUSE
    )


def test_labels_hold_a_pause_open_no_longer_than_a_pause():
    """A network that hears words in noise without end does not stop utterances from ending."""
    spans = [2 * SECOND, 4 * SECOND]
    heard = evidence(VoiceActivity(True, 0, 2 * SECOND), labels=(1, 2), spans=spans)
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 9599, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 9600, 0) == Endpoint(
        2 * SECOND + 7200, EndCause.PAUSE
    )


def test_a_pause_that_is_over_ends_the_utterance_too():
    """Segments are longer than pauses: most pauses are over when their segment has come."""
    pauses = [(SECOND, SECOND + 4799), (2 * SECOND, 2 * SECOND + 4800)]
    heard = evidence(VoiceActivity(True, 0, 4 * SECOND, pauses))
    assert ENDPOINTER.find_pause(heard, 0, 4 * SECOND, 0) == Endpoint(
        2 * SECOND + 2400, EndCause.PAUSE
    )


def test_a_pause_before_committed_words_does_not_end_the_utterance():
    """Audio that committed words attend to would be translated twice; inside the pause is fine."""
    pauses = [(2 * SECOND, 2 * SECOND + 4800)]
    heard = evidence(VoiceActivity(True, 0, 4 * SECOND, pauses))
    assert ENDPOINTER.find_pause(heard, 0, 4 * SECOND, 2 * SECOND + 4000) == Endpoint(
        2 * SECOND + 4000, EndCause.PAUSE
    )
    assert ENDPOINTER.find_pause(heard, 0, 4 * SECOND, 2 * SECOND + 4801) is None


def test_silence_alone_ends_after_five_seconds_and_keeps_its_tail():
    """The next utterance keeps half a second: speech may have just begun in it."""
    heard = evidence(VoiceActivity(False))
    assert ENDPOINTER.find_pause(heard, 0, 5 * SECOND - 1, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, 5 * SECOND, 0) == Endpoint(36_000, EndCause.PAUSE)


def test_a_forced_cut_takes_the_longest_pause_of_the_second_half():
    """A longer pause in the first half does not count."""
    pauses = [
        (1 * SECOND, 3 * SECOND),
        (12 * SECOND, 12 * SECOND + 1600),
        (15 * SECOND, 15 * SECOND + 800),
    ]
    heard = evidence(VoiceActivity(True, 0, 20 * SECOND, pauses))
    cut = ENDPOINTER.cut(heard, 0, 20 * SECOND, spoken_for_sample=0)
    assert cut == Endpoint(12 * SECOND + 800, EndCause.FORCED)


def test_a_forced_cut_never_goes_back_before_committed_words():
    """Audio that committed words attend to would be translated twice."""
    pauses = [(12 * SECOND, 12 * SECOND + 1600), (15 * SECOND, 15 * SECOND + 800)]
    heard = evidence(VoiceActivity(True, 0, 20 * SECOND, pauses))
    cut = ENDPOINTER.cut(heard, 0, 20 * SECOND, spoken_for_sample=14 * SECOND)
    assert cut.end_sample == 15 * SECOND + 400


def test_without_a_pause_the_longest_run_of_blanks_is_cut():
    """And without blanks the utterance's end."""
    spans = [11 * SECOND, 11 * SECOND + 400, 12 * SECOND, 20 * SECOND]
    voice = VoiceActivity(True, 0, 20 * SECOND)
    heard = evidence(voice, labels=[1, 99, 2, 3], spans=spans)
    assert ENDPOINTER.cut(heard, 0, 20 * SECOND, 0).end_sample == 11 * SECOND + 200
    assert (
        ENDPOINTER.cut(replace(heard, ctc_labels=[1, 2, 3, 4]), 0, 20 * SECOND, 0).end_sample
        == 20 * SECOND
    )
