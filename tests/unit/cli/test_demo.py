"""The recording that comes with the demo."""

import pytest

from earvoice.cli.demo import find_recording
from earvoice.client.audio_file import AudioFile


def test_the_demo_brings_its_recording():
    """It is there, readable, and its origin and licence are told beside it."""
    path = find_recording()
    with AudioFile(path) as recording:
        assert recording.duration_ms == pytest.approx(20_725, abs=1)
    readme = (path.parent / "README.md").read_text("utf8")
    assert path.name in readme
    assert "CC BY-SA 4.0" in readme
