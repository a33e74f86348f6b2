"""The demo's recording and its table of stages."""

from dataclasses import fields, replace

import pytest

from earvoice.cli.demo import computation_line, find_recording, stage_table
from earvoice.client.audio_file import AudioFile
from earvoice.client.event import CommittedWord, StageTimings, Summary


def test_the_demo_brings_its_recording():
    """It is there, readable, and its origin and licence are told beside it."""
    path = find_recording()
    with AudioFile(path) as recording:
        assert recording.duration_ms == pytest.approx(11_000, abs=1)
    readme = (path.parent / "README.md").read_text("utf8")
    assert path.name in readme
    assert "public domain" in readme


STARTS_WORD = True
ZERO = StageTimings(*[0.0] * 12)


def word(**timings):
    return CommittedWord(
        "x", STARTS_WORD, "de", 0, 0, 900, 1000, 1100, 1150, replace(ZERO, **timings)
    )


def test_means_and_maxima_of_each_stage():
    """Over the words."""
    words = [word(encoder_compute_ms=10, total_ms=10), word(encoder_compute_ms=30, total_ms=30)]
    squeezed = " ".join(stage_table(words, "live").split())
    assert "encoder computation 20.0 30.0" in squeezed
    assert "in the services 20.0 30.0" in squeezed
    assert "client network 50.0 50.0" in squeezed
    assert "lag behind the speaker 250.0 250.0" in squeezed


def test_every_stage_of_the_message_has_a_row():
    """A stage that was added to the message and forgotten here would fail."""
    words = [word(**{field.name: 777.0 for field in fields(StageTimings)})]
    assert stage_table(words, "live").count("    777.0    777.0") == len(fields(StageTimings))


def test_clocks_are_not_mixed():
    """Without the live clock there is no residual and no lag."""
    table = stage_table([word()], "true")
    assert "client network" not in table
    assert "lag" not in table


def test_the_real_time_factor_is_computation_over_audio():
    """Also for no audio at all."""
    summary = Summary(2000.0, 1, 1, 1, 1, 0, 500.0, {})
    assert "real-time factor 0.250" in computation_line(summary)
    assert "real-time factor 0.000" in computation_line(replace(summary, audio_ms=0.0))
