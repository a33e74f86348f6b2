"""The ``earvoice`` command as a process, against a scripted server."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import webvtt

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import types_pb2 as types
from earvoice.runtime.errors import BackendUnavailableError, SessionLimitError
from tests.integration.client.scripted_service import RoomForOne, ScriptedService, serve
from tests.until import until

ITEM_FIELDS = [
    "type",
    "text",
    "starts_word",
    "utterance",
    "source_start_ms",
    "source_end_ms",
    "delay_ms",
    "elapsed_ms",
    "elapsed_clock",
    "target_language",
    "confidence",
    "file",
]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--beam-size", "0"], "argument --beam-size: '0' is not allowed; allowed: 1 to 16"),
        (["--reconnect-limit-s", "nan"], "'nan' is not allowed; allowed: 0 to 86400"),
        (["--start-timeout-s", "-1"], "'-1' is not allowed; allowed: 0.1 to 86400"),
        ([""], "FILE = '' is not allowed"),
        (["."], "is a folder; allowed: a recording"),
        (["--server", "h:1", "--to", "d\udcff"], r"'d\udcff' is not UTF-8"),
        (["--server", "\udcff:1"], r"'\udcff:1' is not UTF-8"),
    ],
)
async def test_a_bad_argument_is_told_before_anything_starts(recording, arguments, fault):
    status, output, errors = await run("translate", recording, *arguments)
    assert (status in (2, 3), output) == (True, "")
    assert fault in errors


@pytest.fixture
def recording(tmp_path):
    """Return a recording of 100 ms."""
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(1600, np.int16), 16_000)
    return path


async def run(*arguments, stdin=b""):
    """Run the command and return its exit status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "earvoice.cli", *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate(stdin)
    return process.returncode, output.decode(), errors.decode()


async def test_json_lines_have_the_promised_fields(recording):
    """One object for each released item, in order."""
    service = ScriptedService([" Guten", " Tag", "."], clock=api.ELAPSED_CLOCK_TRUE)
    async with serve(service) as address:
        arguments = ("--server", address, "--to", "de", "--fast", "--format", "jsonl")
        status, output, errors = await run("translate", recording, *arguments)
    assert (status, errors) == (0, "")
    *items, end = [json.loads(line) for line in output.splitlines()]
    assert (end["type"], end["cause"], end["utterance"]) == ("utterance_end", "end_of_audio", 0)
    assert [item["text"] for item in items] == ["Guten", "Tag", "."]
    assert all(list(item) == ITEM_FIELDS for item in items)
    assert items[0]["file"] == str(recording)
    assert items[0]["source_end_ms"] == 5.0
    (config,) = service.configs
    assert config.catch_up == api.CATCH_UP_EVERY_SEGMENT


async def test_what_can_be_read_of_a_broken_recording_is_translated(tmp_path):
    """A copy that was cut off: its beginning comes, and then what is wrong."""
    whole = io.BytesIO()
    noise = np.random.default_rng(0).integers(-999, 999, 64_000, np.int16)
    soundfile.write(whole, noise, 16_000, format="FLAC")
    path = tmp_path / "cut.flac"
    path.write_bytes(whole.getvalue()[: whole.getbuffer().nbytes // 2])
    async with serve(ScriptedService([" Guten", " Tag"])) as address:
        status, output, errors = await run("translate", path, "--server", address, "--to", "de")
    assert (status, output) == (3, "Guten Tag\n")
    assert "cut.flac is damaged" in errors


async def test_stage_timings_and_transcript_come_when_asked_for(recording):
    """They add fields and lines, and nothing comes unasked."""
    service = ScriptedService([" Tag"])
    async with serve(service) as address:
        asked = ("--format", "jsonl", "--stage-timings", "--transcript", "--realtime")
        _, output, _ = await run("translate", recording, "--server", address, *asked)
    item, transcript = map(json.loads, output.splitlines())
    assert item["stage_timings"]["encoder_compute_ms"] == 5
    assert item["client_network_ms"] == pytest.approx(item["received_ms"] - 7, abs=0.01)
    assert transcript["source_transcript"] == "heard"
    (config,) = service.configs
    assert config.catch_up == api.CATCH_UP_MERGE


@pytest.mark.parametrize("limit", [1, 2])
async def test_several_languages_are_translated_at_once(recording, limit):
    """In one session where the server takes so many, else in one for each, side by side."""
    service = ScriptedService([" Tag"], max_target_languages=limit)
    async with serve(service) as address:
        targets = ("--to", "de,es", "--format", "jsonl")
        status, output, errors = await run("translate", recording, "--server", address, *targets)
    assert (status, errors) == (0, "")
    assert sorted(list(config.target_language_codes) for config in service.configs) == (
        [["de"], ["es"]] if limit == 1 else [["de", "es"]]
    )
    lines = [json.loads(line) for line in output.splitlines()]
    ends = [line["target_language"] for line in lines if line["type"] == "utterance_end"]
    assert sorted(ends) == ["de", "es"]


async def test_a_session_that_fails_ends_those_beside_it(recording):
    """Half of the languages is no translation."""
    service = ScriptedService(failure=RuntimeError("bug"), fail_after=1)
    async with serve(service) as address:
        status, _, errors = await run("translate", recording, "--server", address, "--to", "de,es")
    assert status == 1
    assert errors.count("the same command will fail again") == 1


async def test_each_language_needs_room_for_a_session(recording):
    """To try again would not help where a server has room for one, and it cannot know that."""
    full = SessionLimitError("1 of 1 sessions are taken", retry_after_ms=2000)
    async with serve(ScriptedService(failure=full, max_target_languages=1)) as address:
        ended, _, errors = await run("translate", recording, "--server", address, "--to", "de,es")
    assert ended == 75
    assert "--to needs 2 sessions at once, one for each language" in errors


async def test_no_words_are_shown_while_another_language_may_be_refused(recording):
    """So that nothing was lost, and to try again repeats nothing."""
    service = RoomForOne([" Guten"])
    async with serve(service) as address:
        ended, output, errors = await run(
            "translate", recording, "--server", address, "--to", "de,es"
        )
    assert (ended, output, service.audio) == (75, "", [])
    assert "nothing was lost" in errors


async def test_subtitles_of_a_recording(recording):
    """A program that reads SubRip finds the words."""
    async with serve(ScriptedService([" Guten", " Tag"])) as address:
        arguments = ("--server", address, "--format", "srt")
        status, output, errors = await run("translate", recording, *arguments)
    assert (status, errors) == (0, "")
    (caption,) = webvtt.from_buffer(io.StringIO(output), format="srt")
    assert caption.text == "Guten Tag"
    assert (caption.start, caption.end) == ("00:00:00.000", "00:00:01.000")


async def test_a_recording_without_words_is_told_of(recording):
    """On standard error, and it is no failure."""
    async with serve(ScriptedService()) as address:
        status, output, errors = await run("translate", recording, "--server", address)
    assert (status, output, errors) == (0, "", "earvoice: a.wav: no speech was found\n")


async def test_two_minutes_without_words_are_told_once(recording):
    """While the stream goes on: whoever chose the wrong input can choose another."""
    service = ScriptedService()
    service.segment_samples = 16_000 * 60
    async with serve(service) as address:
        arguments = ("--server", address, "--encoding", "linear16")
        status, _, errors = await run("translate", "-", *arguments, stdin=bytes(320_000))
    assert len(service.audio) > 2
    assert (status, errors.count("no speech was found")) == (0, 1)
    assert "in the first 2 minutes: is this the right input" in errors


async def test_the_policy_reaches_the_server(recording):
    """Name and parameters, and what belongs to the stream."""
    service = ScriptedService()
    async with serve(service) as address:
        policy = ("--policy", "wait-k", "--k", "7", "--detection", "adaptive")
        stream = ("--segment-ms", "500", "--commit-unit", "token", "--no-endpointing")
        status, *_ = await run("translate", recording, "--server", address, *policy, *stream)
    assert status == 0
    (config,) = service.configs
    assert config.policy.wait_k.k == 7
    assert config.segment_duration.ToMilliseconds() == 500
    assert config.commit_unit == api.COMMIT_UNIT_TOKEN
    assert config.endpointing.disabled
    assert config.target_language_codes == ["de"]


async def test_raw_audio_comes_from_standard_input():
    """A pipe is the microphone: text flows, and the live clock is asked for."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as address:
        raw = ("--rate", "8000", "--encoding", "mulaw")
        status, output, _ = await run("translate", "-", "--server", address, *raw, stdin=b"1234")
    assert (status, output) == (0, "Guten Tag.\n")
    assert b"".join(service.audio) == b"1234"
    (config,) = service.configs
    assert (config.sample_rate_hertz, config.audio_encoding) == (8000, types.AUDIO_ENCODING_MULAW)
    assert config.catch_up == api.CATCH_UP_MERGE


async def test_text_that_a_guard_held_back_is_owned_up_to(recording):
    """On standard error; a silent utterance is nothing to tell of."""
    service = ScriptedService([" Tag"], guards_hit={"loop": 6, "length": 1, "evidence": 3})
    async with serve(service) as address:
        status, output, errors = await run("translate", recording, "--server", address)
    assert (status, output) == (0, "Tag\n")
    assert errors == "earvoice: a.wav: guards cut the translation (length: 1, loop: 6)\n"


async def test_several_recordings_are_told_apart(recording):
    """Each has its heading in text, and its sessions follow each other."""
    async with serve(ScriptedService([" Tag"])) as address:
        status, output, _ = await run("translate", recording, recording, "--server", address)
    assert status == 0
    assert output == f"==> {recording} <==\nTag\n" * 2


@pytest.mark.parametrize(
    ("failure", "fail_after", "status", "words"),
    [
        (SessionLimitError("16 of 16", retry_after_ms=2000), 0, 75, "try again in 2 s"),
        (BackendUnavailableError("gone"), 1, 76, "translate the rest of the audio again"),
        (RuntimeError("bug"), 1, 1, "the same command will fail again"),
    ],
)
async def test_the_exit_status_says_what_to_do(recording, failure, fail_after, status, words):
    """Retry, resume and give up differ, in status and in words."""
    async with serve(ScriptedService(failure=failure, fail_after=fail_after)) as address:
        server = ("--server", address, "--reconnect-limit-s", "0")
        ended, _, errors = await run("translate", recording, *server)
    assert ended == status
    assert words in errors


async def test_models_are_listed():
    """For people and for programs."""
    async with serve(ScriptedService()) as address:
        _, text, _ = await run("models", "--server", address)
        _, content, _ = await run("models", "--server", address, "--format", "json")
    assert "m 1:  -> de" in text
    assert json.loads(content)["models"][0]["target_languages"] == ["de"]


async def test_an_unknown_model_names_those_served(recording):
    """Without --to the target is the model's first, so the model must exist."""
    async with serve(ScriptedService()) as address:
        status, _, errors = await run("translate", recording, "--server", address, "--model", "x")
    assert status == 1
    assert "model = 'x' is not served; served: m" in errors


async def test_the_demo_shows_words_and_where_the_time_went(recording):
    """Words with audio time and lag, then the table, then the real-time factor."""
    async with serve(ScriptedService([" Guten", " Tag"])) as address:
        status, output, errors = await run("demo", "--audio", recording, "--server", address)
    assert (status, errors) == (0, "")
    assert "0.00-0.01 s" in output
    assert "Guten Tag" in output
    assert re.search(r"encoder computation +5\.0 +5\.0\n", output)
    assert "client network" in output
    assert "real-time factor 0.020" in output


async def test_the_demo_owns_up_to_silence(recording):
    """A recording in which nothing was understood is no error, and no table either."""
    async with serve(ScriptedService()) as address:
        status, output, _ = await run("demo", "--audio", recording, "--server", address)
    assert status == 0
    assert "no words were released" in output


def start(arguments, **streams):
    """Start the command; streams that are not given are not there to be read or written."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams}
    return subprocess.Popen(
        [sys.executable, "-m", "earvoice.cli", *map(str, arguments)],
        stderr=subprocess.PIPE,
        **streams,
    )


async def finish(process):
    """Return exit status and what was told."""
    output, errors = await asyncio.to_thread(process.communicate, timeout=200)
    return process.returncode, output, errors.decode()


async def status_of(process):
    """Return the exit status of a process whose input stays open; it is killed if it hangs."""
    try:
        return await asyncio.to_thread(process.wait, 60)
    finally:
        process.kill()


async def test_an_empty_standard_input_is_told():
    """A character device that no event loop can wait on."""
    async with serve(ScriptedService()) as address:
        status, _, errors = await finish(start(["translate", "-", "--server", address]))
    assert (status, errors) == (3, "earvoice: standard input ended before any audio came\n")


async def test_an_endless_device_is_read_until_a_signal():
    """As a microphone would be: Ctrl-C ends the audio, the words come."""
    service = ScriptedService([" Guten", " Tag"])
    with Path("/dev/zero").open("rb") as zero:  # noqa: ASYNC230 - opened, not read
        async with serve(service) as address:
            process = start(["translate", "-", "--server", address], stdin=zero)
            await until(lambda: len(service.audio) >= 3)
            process.send_signal(signal.SIGINT)
            status, output, errors = await finish(process)
    assert (status, output) == (0, b"Guten Tag\n"), errors


async def test_ctrl_c_ends_the_command_while_no_audio_has_come():
    """There is nothing to translate to its end, and standard input has not ended."""
    service = ScriptedService()
    async with serve(service) as address:
        with start(["translate", "-", "--server", address], stdin=subprocess.PIPE) as process:
            await until(lambda: service.configs)
            process.send_signal(signal.SIGINT)
            assert await status_of(process) == 130


async def test_ctrl_c_is_not_for_a_source_that_has_ended(tmp_path):
    """The recording that follows it is not waited for."""
    path = tmp_path / "hour.wav"
    soundfile.write(path, np.zeros(3600 * 8000, np.int16), 8000)
    service = ScriptedService([" Guten", " Tag"])
    async with serve(service) as address:
        arguments = ["translate", "-", path, "--realtime", "--server", address]
        with start(arguments, stdin=subprocess.PIPE) as process:
            process.stdin.write(bytes(3200))
            process.stdin.close()
            await until(lambda: len(service.configs) >= 2)
            process.send_signal(signal.SIGINT)
            assert await status_of(process) == 130


@pytest.mark.parametrize(
    ("closed", "status", "words"),
    [
        ("<&-", 3, "standard input is closed"),
        ("--text <&-", 3, "standard input is closed"),
        (">&-", 74, "standard output is closed"),
    ],
)
async def test_closed_streams_are_told(closed, status, words):
    """Neither a traceback nor silence."""
    command = f"exec {sys.executable} -m earvoice.cli translate - --server h:1 {closed}"
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (
        status,
        True,
        False,
    )


@pytest.mark.parametrize("words", [[" Tag"], []])
async def test_nobody_has_to_read_what_is_told(recording, words):
    """With a closed standard error the words still come, and nothing else among them."""
    command = f"exec {sys.executable} -m earvoice.cli translate {recording} --server $0 2>&-"
    async with serve(ScriptedService(words)) as address:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", command, address, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"Tag\n" if words else b"")


@pytest.mark.parametrize("command", ["translate", "presets"])
async def test_a_full_disk_is_no_wrong_usage(recording, command):
    """Output that cannot be written has an exit status of its own."""
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230 - opened, not written
        async with serve(ScriptedService([" Tag"])) as address:
            asked = ["translate", recording, "--server", address]
            process = start(asked if command == "translate" else [command], stdout=full)
            status, _, errors = await finish(process)
    assert status == 74
    assert errors == "earvoice: output cannot be written: No space left on device\n"


async def test_a_letter_that_the_terminal_does_not_have_is_escaped(recording):
    """Never lost, and no traceback."""
    async with serve(ScriptedService([" Schön"])) as address:
        process = start(
            ["translate", recording, "--server", address],
            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        )
        status, output, errors = await finish(process)
    assert (status, output, errors) == (0, b"Sch\\xf6n\n", "")


def test_ctrl_c_while_the_command_is_loaded_is_told_in_a_line():
    """Nothing is running yet that could be cleaned up."""
    interrupted = """
import sys
from pathlib import Path

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from earvoice.cli.__main__ import main
sys.exit(main(["--help"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", interrupted], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "earvoice: ended by SIGINT\n"
