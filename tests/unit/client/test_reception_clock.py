"""The client's wall clock of one stream."""

import pytest

from earvoice.client.audio_format import AudioFormat
from earvoice.client.reception_clock import ReceptionClock


def read_after(*, paced):
    """Return the reading 2 s after the first of two messages of 100 ms was sent."""
    now_s = 50.0
    clock = ReceptionClock(AudioFormat(), paced=paced, now_s=lambda: now_s)
    clock.note_sending(3200)
    now_s = 51.0
    clock.note_sending(3200)
    now_s = 52.0
    return clock.read_ms()


def test_paced_audio_counts_from_when_the_first_sample_existed():
    """The first chunk was sent when its last sample existed."""
    assert read_after(paced=True) == pytest.approx(2100)


def test_a_recording_counts_from_the_first_sending():
    """At full speed there is no moment when the first sample existed."""
    assert read_after(paced=False) == pytest.approx(2000)


def test_nothing_sent_reads_zero():
    """A server that talks before any audio is no reason to fail."""
    assert ReceptionClock(AudioFormat(), paced=True, now_s=lambda: 5.0).read_ms() == 0.0
