"""The ``earvoice`` command as a process, against a scripted server."""

import asyncio
import json
import re
import sys

import numpy as np
import pytest
import soundfile

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import types_pb2 as types
from earvoice.runtime.errors import BackendUnavailableError, SessionLimitError
from tests.integration.client.scripted_service import ScriptedService, serve

ITEM_FIELDS = [
    "text",
    "starts_word",
    "utterance",
    "source_start_ms",
    "source_end_ms",
    "delay_ms",
    "elapsed_ms",
    "elapsed_clock",
    "target_language",
    "file",
]


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
    items = [json.loads(line) for line in output.splitlines()]
    assert [item["text"] for item in items] == ["Guten", "Tag", "."]
    assert all(list(item) == ITEM_FIELDS for item in items)
    assert items[0]["file"] == str(recording)
    assert items[0]["source_end_ms"] == 5.0
    (config,) = service.configs
    assert config.catch_up == api.CATCH_UP_EVERY_SEGMENT


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
