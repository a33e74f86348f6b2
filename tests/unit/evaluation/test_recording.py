"""Recordings of the encoder on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.cli.__main__ import main
from earvoice.evaluation.recorder import _check_lengths, _check_sources
from earvoice.evaluation.recording import (
    Description,
    Grid,
    RecordedInput,
    Recording,
    RecordingError,
    Revision,
)
from earvoice.evaluation.source_set import SourceRecording
from earvoice.runtime.files import digest_of

DESCRIPTION = Description("m", "f00", computes_in_bfloat16=False, grids=("800", "100+900"))
REVISIONS = (Revision(12_800, False, 1.5, 20.0), Revision(16_000, True, 2.0, 25.0))


def recorded(index: int) -> RecordedInput:
    return RecordedInput(index, f"{index}.wav", "Hallo.", 16_000, 16_000, REVISIONS)


def messages() -> list[pb.EncodeResponse]:
    return [
        pb.EncodeResponse(encoded={"states": {"data": bytes([number]), "state_count": number}})
        for number in (1, 2)
    ]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Two inputs, the second one first."""
    made = Recording(tmp_path / "recording")
    made.begin(DESCRIPTION)
    for index in (1, 0):
        made.add(recorded(index), messages())
    return made


def test_what_was_recorded_is_read_back(recording: Recording):
    """Inputs come in order, with their revisions as the encoder sent them."""
    again = Recording(recording.folder)
    assert again.describe() == DESCRIPTION
    assert again.inputs() == [recorded(0), recorded(1)]
    assert again.messages(recorded(1)) == messages()


def test_a_recording_goes_on_only_in_the_same_way(recording: Recording):
    """Another model or grid would mix what cannot be compared."""
    recording.begin(DESCRIPTION)
    with pytest.raises(RecordingError, match='model_hash = "f00", now it would be "0ff"; give an'):
        recording.begin(replace(DESCRIPTION, model_hash="0ff"))


def test_an_input_counts_once_it_is_whole(recording: Recording):
    """Revisions without their line are those of a killed run; a damaged line is told."""
    (recording.folder / "revisions" / "0002.pb").write_bytes(b"\x01")
    assert len(recording.inputs()) == 2
    with (recording.folder / "inputs.jsonl").open("a") as file:
        file.write('{"index": 2\n')
    with pytest.raises(RecordingError, match=r"inputs\.jsonl is damaged"):
        recording.inputs()


def test_a_torn_line_is_dropped(recording: Recording):
    """A killed run leaves half a line, perhaps half a letter: that input is recorded again."""
    with (recording.folder / "inputs.jsonl").open("ab") as file:
        file.write('{"index": 2, "source": "ü'.encode()[:-1])
    assert len(recording.inputs()) == 2
    recording.begin(DESCRIPTION)
    recording.add(recorded(2), messages())
    assert recording.inputs() == [recorded(0), recorded(1), recorded(2)]


def test_a_reference_may_hold_any_sign(recording: Recording):
    """Unicode knows more ends of lines than files do."""
    odd = replace(recorded(2), reference="eins\u2028zwei\x85drei")
    recording.add(odd, messages())
    assert recording.inputs()[2] == odd


def test_two_runs_at_once_are_noticed(recording: Recording):
    """An input that was recorded twice would count twice."""
    recording.add(recorded(1), messages())
    with pytest.raises(RecordingError, match="input 1 twice"):
        recording.inputs()


def test_a_recording_goes_on_only_with_all_that_it_holds(recording: Recording):
    """A replay of it would also be of what is not listed any more."""
    sources = [recorded(index).source_recording for index in range(3)]
    assert _check_sources(recording, sources) == {0, 1}
    with pytest.raises(
        RecordingError, match=r"input 1 is 1\.wav there, and none of the recordings"
    ):
        _check_sources(recording, sources[:1])


def test_other_sound_of_the_same_length_is_another_recording(tmp_path: Path):
    """Only earlier versions did not keep its digest: there, name and length must do."""
    path = tmp_path / "0.wav"
    path.write_bytes(b"one")
    kept = replace(recorded(0), source=str(path), digest=digest_of([path]))
    for name, before in (("kept", kept), ("earlier", replace(kept, digest=""))):
        recording = Recording(tmp_path / name)
        recording.begin(DESCRIPTION)
        recording.add(before, messages())
    sources = [kept.source_recording]
    assert _check_sources(Recording(tmp_path / "kept"), sources) == {0}
    path.write_bytes(b"two")
    with pytest.raises(RecordingError, match="of another test set: input 0"):
        _check_sources(Recording(tmp_path / "kept"), sources)
    assert _check_sources(Recording(tmp_path / "earlier"), sources) == {0}


@pytest.mark.parametrize(
    "content", [b"", b"\x05ab", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_damaged_revisions_are_told(recording: Recording, content: bytes):
    """The message names the file."""
    (recording.folder / "revisions" / "0000.pb").write_bytes(content)
    with pytest.raises(RecordingError, match=r"0000\.pb"):
        recording.messages(recorded(0))


def test_a_folder_of_something_else_is_refused(tmp_path: Path):
    """No description, or one of another version."""
    with pytest.raises(RecordingError, match="no description of a recording"):
        Recording(tmp_path).describe()
    Recording(tmp_path).begin(replace(DESCRIPTION, format_version=9))
    with pytest.raises(RecordingError, match="format_version = 9; allowed: 2"):
        Recording(tmp_path).describe()


@given(st.integers(1, 3000), st.integers(0, 3000), st.sampled_from((8000, 16_000, 44_100)))
def test_boundaries_are_a_segment_apart(segment_ms: int, wait_ms: int, rate_hertz: int):
    """The first is longer by the wait; all lie in the audio."""
    grid, count = Grid(segment_ms, wait_ms), 10 * rate_hertz
    ends = list(grid.boundaries(rate_hertz, count))
    assert Grid.parse(str(grid)) == grid
    assert all(0 < end <= count for end in ends)
    for number, end in enumerate(ends):
        exact = (wait_ms + (number + 1) * segment_ms) * rate_hertz / 1000
        assert abs(end - exact) <= 1


@pytest.mark.parametrize("text", ["", "0", "-5", "800+", "800+x", "fast", "800+-1"])
def test_a_bad_grid_is_refused(text: str):
    """Segments last more than nothing."""
    with pytest.raises(ValueError, match=r"allowed: SEGMENT or SEGMENT\+WAIT"):
        Grid.parse(text)


@pytest.mark.parametrize(
    ("limit_ms", "heard_ms", "told"),
    [
        (40_000, 30_000, "30000 ms .all that this model hears"),
        (20_000, 30_000, "20000 ms .EARVOICE_ENCODER_MAX_UTTERANCE_MS"),
        (20_000, 0, "20000 ms .EARVOICE_ENCODER_MAX_UTTERANCE_MS"),
    ],
)
def test_what_no_stream_hears_as_one_utterance_is_not_recorded(limit_ms, heard_ms, told):
    sources = [
        SourceRecording(0, Path("short.wav"), 9_000.0),
        SourceRecording(1, Path("long.wav"), 35_000.0),
    ]
    with pytest.raises(RecordingError, match=rf"1 of 2 .*long\.wav is 35000 ms long.*{told}"):
        _check_lengths(sources, limit_ms, heard_ms)
    _check_lengths(sources, 40_000, 0)


@pytest.mark.parametrize(
    ("model", "precision", "told"),
    [
        ("nowhere", "auto", "nowhere: no such file or folder"),
        ("whisper", "auto", "whisper is computed by transformers"),
        ("", "int8", "EARVOICE_ENCODER_PRECISION = 'int8'; recordings take: fp32, bf16, auto"),
        ("", "fp8", "EARVOICE_ENCODER_PRECISION = 'fp8': "),
    ],
)
def test_what_cannot_be_recorded_is_told_before_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    precision: str,
    told: str,
):
    """Not after an hour of it: here the server is not even asked."""
    (tmp_path / "whisper").mkdir()
    (tmp_path / "whisper" / "config.json").write_text('{"model_type": "whisper"}')
    soundfile.write(tmp_path / "a.wav", np.zeros(1600, np.int16), 16_000)
    (tmp_path / "wavs.txt").write_text("a.wav\n")
    if model:
        monkeypatch.setenv("EARVOICE_ENCODER_MODEL_PATH", str(tmp_path / model))
    monkeypatch.setenv("EARVOICE_ENCODER_PRECISION", precision)
    source, run = str(tmp_path / "wavs.txt"), str(tmp_path / "run")
    options = ("--source", source, "--output", run, "--server", "127.0.0.1:1")
    assert main(["evaluate", *options, "--no-endpointing", "--record"]) in (2, 3)
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
