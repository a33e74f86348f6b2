"""`earvoice verify run`: reading a recorded run, playing its agent, comparing."""

from __future__ import annotations

import argparse
import gzip
import json
import wave
from dataclasses import replace
from pathlib import Path

import pytest

from earvoice.cli.command import CommandError, ExitCode
from earvoice.client.event import Committed, CommittedWord, SegmentDone
from earvoice.client.options import HistorySelection
from earvoice.evaluation.commands import find_checkpoint
from earvoice.evaluation.log import LogError, Record
from earvoice.evaluation.verification.command import COMMAND
from earvoice.evaluation.verification.runs import (
    RecordedRun,
    RunInstance,
    RunSegment,
    compare,
    compression_of,
    play_options,
    played_instance,
    read_recording,
    read_run,
    summary_of,
)
from earvoice.policies import AlignAtt, Edatt, LocalAgreement, WaitK
from earvoice.runtime.audio_format import AudioFormat

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "runs"
WAIT_3 = GOLDEN / "v10_avg_waitk3_adaptive.json.gz"
STREAM_ATT = GOLDEN / "v11_avg_streamatt_w8.json.gz"

RECORDED = RunInstance(
    ("die", "Zeitung"),
    (1000.0, 2000.0),
    (RunSegment((6, 82, 7), 0, (6,)), RunSegment((6, 82), 1, (82,))),
    0,
    "w.wav",
    2000.0,
)
PLAYED = RunInstance(
    ("die", "Zeitung"),
    (1000.0, 2000.0),
    (
        RunSegment((6, 82, 7), 0, (6,), 1000.0),
        RunSegment((6, 82), 1, (82,), 2000.0),
    ),
)


def changed_run(tmp_path: Path, change, source: Path = WAIT_3) -> Path:
    content = json.loads(gzip.decompress(source.read_bytes()))
    change(content)
    path = tmp_path / "run.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_the_last_read_and_the_final_write_are_one_segment():
    """The first instance ends with its audio: 13 reads, the last of which writes the rest."""
    first = read_run(WAIT_3).instances[0]
    assert len(first.segments) == 13
    last = first.segments[-1]
    assert last.hypothesis is not None
    assert last.written == last.hypothesis[last.prefix_count :]
    assert first.words[-1] == "Fenster."
    assert first.delays_ms[-1] == first.source_ms == 4131.25


def test_what_is_written_is_the_next_prefix():
    """The recorded commits add up, and no end of sentence is among them."""
    for instance in read_run(WAIT_3).instances:
        written: tuple[int, ...] = ()
        for segment in instance.segments:
            if segment.hypothesis is not None:
                assert segment.hypothesis[: segment.prefix_count] == written
            written += segment.written
        assert 2 not in written


def test_a_segment_without_a_word_due_has_no_hypothesis():
    """Wait-k does not decode before a word is due."""
    segments = read_run(WAIT_3).instances[0].segments
    assert [segment.hypothesis is None for segment in segments[:3]] == [True, True, False]


def test_an_early_end_ends_the_recorded_segments():
    """The second instance stops 1.2 s before its audio does."""
    early = read_run(WAIT_3).instances[1]
    assert len(early.segments) * 320 < early.source_ms - 1000


def test_a_long_form_run_tells_text_for_tokens():
    """Agents 1.1: hypotheses and kept prefixes, and words with the segment that released them."""
    instance = read_run(STREAM_ATT).instances[0]
    assert len(instance.segments) == 30
    assert all(segment.written is None for segment in instance.segments)
    assert len(instance.words) == len(instance.delays_ms) == 230
    assert {delay % 1000 for delay in instance.delays_ms[:-20]} == {0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("meta"), "meta is missing"),
        (lambda c: c.update(instances=[]), "instances is empty"),
        (lambda c: c["instances"][0].update(delays=[1.0]), "1 delays for 15 words"),
        (lambda c: c["instances"][0].update(trace=[]), "instance 0: trace is empty"),
        (lambda c: c["instances"][0]["trace"][0].update(type="peek"), "type = 'peek'"),
        (lambda c: c["instances"][0]["trace"][3].update(prefix=[9]), "begin with its prefix"),
        (lambda c: c["instances"][0]["trace"][2].update(hypo=[1.5]), "must be an integer"),
        (lambda c: c["meta"].update(policy="cif"), "policy = 'cif' is not allowed"),
        (lambda c: c["meta"]["args"].update(data_bin="g_t1"), "data_bin must end in"),
        (lambda c: c["meta"]["args"].update(adaptive_segmentation=False), "adaptive_segm"),
        (lambda c: c["meta"]["args"].update(prefix_size=1), "prefix_size"),
    ],
)
def test_a_run_that_cannot_be_played_is_told(change, message, tmp_path):
    """Before any service is started, with the status of bad input."""
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    path = changed_run(tmp_path, change)
    arguments = ["run", str(path), "--model", str(tmp_path), "--wav", str(tmp_path)]
    with pytest.raises(CommandError, match=message) as failure:
        COMMAND.run(parser.parse_args(arguments))
    assert failure.value.exit_code is ExitCode.INPUT


def test_a_file_that_is_no_run_is_told(tmp_path):
    """No gzip, or no JSON in it."""
    path = tmp_path / "run.json.gz"
    for content in (b"{}", gzip.compress(b"{"), gzip.compress(b"[]"), WAIT_3.read_bytes()[:900]):
        path.write_bytes(content)
        with pytest.raises(LogError):
            read_run(path)


def agent_of(policy: str, **arguments):
    common = {"beam": 5, "prefix_size": 0, "no_repeat_ngram_size": 0, "data_bin": "x/g_t1_avg"}
    fields = Record("run", {**common, **arguments})
    run = RecordedRun("run", policy, fields, 800, (RECORDED,))
    return play_options(run), compression_of(run)


def test_each_agent_is_played_by_its_policy():
    """Layers count from 1 here; only EDAtt and wait-k 1.0 end early."""
    attention = {"extract_attn_from_layer": 2, "frame_num": 4, "attn_threshold": 0.2}
    assert agent_of("edatt", **attention)[0].policy == Edatt(0.2, 4, 3, "l2", allow_early_end=True)
    assert agent_of("alignatt", **attention)[0].policy == AlignAtt(4, 3)
    assert agent_of("la")[0].policy == LocalAgreement(2)
    wait = agent_of("waitk", waitk=3, adaptive_segmentation=True)[0].policy
    assert wait == WaitK(3, "adaptive", end_while_reading="commit")


def test_a_long_form_agent_keeps_words_and_drops_the_last_accepted_one():
    """The class that it wraps decides; what it accepts last is never committed."""
    options = play_options(read_run(STREAM_ATT))
    assert options.policy == AlignAtt(4, 3)
    assert options.history_selection == HistorySelection(8)
    assert options.commit_unit == "followed-word"
    assert options.beam_size == 5


def test_sessions_are_without_guards_and_endpoints():
    """An agent 1.0 commits tokens, and nothing of ours interferes."""
    options, compression = agent_of("la", data_bin="x/g_t1_none")
    assert options.disable_guards
    assert options.endpointing.disabled
    assert options.commit_unit == "token"
    assert options.hypotheses
    assert compression == "none"


def test_equal_runs_have_no_differences():
    """And the counts say what was compared."""
    differences, counts = compare(RECORDED, PLAYED)
    assert differences == []
    assert summary_of(counts) == (
        "1 instances, 2 segments (2 hypotheses), 2 words: 0 instances differ, in 0 places"
    )


@pytest.mark.parametrize(
    ("played", "message"),
    [
        (
            replace(PLAYED, segments=(replace(PLAYED.segments[0], hypothesis=(6, 82)),)),
            "segment 1 (to 1000 ms): hypothesis: recorded [] + [6, 82, 7], decoded [] + [6, 82]",
        ),
        (replace(PLAYED, segments=PLAYED.segments[:1]), "segment 2: recorded, but not worked on"),
        (
            replace(PLAYED, segments=(PLAYED.segments[0], replace(PLAYED.segments[1], written=()))),
            "commit: recorded [82], committed []",
        ),
        (
            replace(PLAYED, segments=(*PLAYED.segments, RunSegment((6, 82, 7), 2, (7,), 2500.0))),
            "segment 3 (to 2500 ms): nothing recorded, committed [7]",
        ),
        (replace(PLAYED, words=("die", "Katze")), "words: recorded 'die Zeitung', released"),
        (replace(PLAYED, delays_ms=(1000.0, 1000.0)), "delay of word 2 'Zeitung': recorded 2000"),
    ],
)
def test_each_kind_of_difference_is_told(played, message):
    """The line names instance, segment and both sides."""
    lines, _ = compare(RECORDED, played)
    assert any(line.startswith("instance 0") and message in line for line in lines)


def test_a_segment_that_we_did_not_decode_differs_only_if_something_was_written():
    """With one state an agent decodes in vain; we do not."""
    silent = replace(RECORDED, segments=(RunSegment((6,), 0, ()),), words=(), delays_ms=())
    played = RunInstance((), (), (RunSegment(None, 0, (), 1000.0),))
    assert compare(silent, played)[0] == []
    spoken = replace(silent, segments=(RunSegment((6,), 0, (6,)),))
    assert len(compare(spoken, played)[0]) == 2


def word(text: str, delay_ms: float, *, starts: bool = True) -> CommittedWord:
    return CommittedWord(text, starts, "de", 0, 0.0, 1.0, delay_ms, delay_ms, delay_ms)


def test_events_become_what_was_played():
    """Words with the delay of their first piece; hypotheses with what was committed of them."""
    played = played_instance(
        [
            Committed((word("Fenster", 1000.0),), 0, b""),
            SegmentDone(0, 1, 1000.0, 1.0, 0.0, 0, 1, (6, 82, 7), 1, 1),
            Committed((word(".", 2000.0, starts=False),), 0, b""),
            SegmentDone(0, 2, 2000.0, 1.0, 0.0, 0, 0),
        ]
    )
    assert played.words == ("Fenster.",)
    assert played.delays_ms == (1000.0,)
    assert played.segments == (
        RunSegment((6, 82, 7), 1, (82,), 1000.0),
        RunSegment(None, 0, (), 2000.0),
    )


def write_wav(path: Path, samples: int, rate_hz: int = 16_000) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate_hz, samples, "NONE", ""))
        file.writeframes(bytes([len(path.stem), 0]) * samples)


def test_a_joined_recording_is_its_files_in_order(tmp_path):
    """``cc_2_1`` is two files from the second on."""
    for number in range(4):
        write_wav(tmp_path / f"w{'x' * number}.wav", 1600 * (number + 1))
    instance = replace(RECORDED, wav="cc_2_1.wav", source_ms=500.0)
    audio, chunks = read_recording(instance, tmp_path)
    assert b"".join(chunks) == b"\x02\x00" * 3200 + b"\x03\x00" * 4800
    assert audio == AudioFormat("linear16", 16_000)


def test_audio_that_is_not_there_is_told(tmp_path):
    """A missing file, too few to join, another length, other formats."""
    write_wav(tmp_path / "w.wav", 1600)
    write_wav(tmp_path / "x.wav", 1600, rate_hz=8_000)
    for name, message in (
        ("v.wav", "has no v.wav"),
        ("cc_3_0.wav", "too few for cc_3_0.wav"),
        ("w.wav", "lasts 100.0 ms: the run says 2000.0 ms"),
        ("cc_2_0.wav", "different formats"),
    ):
        with pytest.raises(LogError, match=message):
            read_recording(replace(RECORDED, wav=name), tmp_path)


def test_the_checkpoint_of_a_folder_is_found(tmp_path):
    """Its only ``.pt`` file, else the folder itself; several are refused."""
    assert find_checkpoint(tmp_path) == tmp_path
    (tmp_path / "a.pt").touch()
    assert find_checkpoint(tmp_path) == tmp_path / "a.pt"
    (tmp_path / "b.pt").touch()
    with pytest.raises(CommandError, match=r"a\.pt, b\.pt") as refused:
        find_checkpoint(tmp_path)
    assert refused.value.exit_code is ExitCode.USAGE
    assert find_checkpoint(tmp_path / "b.pt") == tmp_path / "b.pt"
    with pytest.raises(CommandError, match="no such file or folder") as missed:
        find_checkpoint(tmp_path / "c")
    assert missed.value.exit_code is ExitCode.INPUT
