"""The wire is what the protos and docs say: a client with none of our code drives the services."""

from __future__ import annotations

import importlib.resources
import itertools
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.e2e.calling import ROOT, SPEECH

CLIENT = Path(__file__).with_name("wire_client.py")
PROTOS = ROOT / "protos"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our protos, compiled by protoc into a folder that holds nothing else."""
    folder = tmp_path_factory.mktemp("generated")
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{well_known}"]
        + [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        + [str(path) for path in sorted(PROTOS.rglob("*.proto"))],
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def told(services, generated: Path) -> dict:
    """What the client saw of the demo recording."""
    site_packages = sysconfig.get_path("purelib")
    command = [sys.executable, "-I", "-S", str(CLIENT), str(generated), site_packages]
    done = subprocess.run(
        [*command, services.address, str(SPEECH)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=150,
    )
    return json.loads(done.stdout)


def of(told: dict, kind: str) -> list[dict]:
    return [response for response in told["responses"] if response["kind"] == kind]


def items_of(told: dict) -> list[dict]:
    return [item for committed in of(told, "committed") for item in committed["items"]]


def test_the_client_has_none_of_our_code(told: dict, generated: Path):
    """Every module it loaded under our name was generated from the protos a moment ago."""
    assert told["modules"]["loaded"]
    assert all(Path(p).is_relative_to(generated) for p in told["modules"]["loaded"].values())
    assert not told["modules"]["services_importable"]


def test_the_stream_ends_well_and_counts_every_response(told: dict):
    """Status OK; seq from 1 by one; SessionStarted first and once, Summary last and once."""
    kinds = [response["kind"] for response in told["responses"]]
    assert told["code"] == "OK"
    assert [response["seq"] for response in told["responses"]] == list(range(1, len(kinds) + 1))
    assert (kinds[0], kinds[-1]) == ("session_started", "summary")
    assert (kinds.count("session_started"), kinds.count("summary")) == (1, 1)
    assert set(kinds[1:-1]) == {"committed", "segment_done", "end_of_utterance"}


def test_the_session_tells_what_it_will_do(told: dict):
    """The effective config has every default filled in, and the model is one of ListModels."""
    started = of(told, "session_started")[0]
    config = started["config"]
    assert started["session_id"]
    assert started["server_version"]
    assert started["next_sample"] == 0
    assert started["elapsed_clock"] == "ELAPSED_CLOCK_TRUE"
    assert started["model"] == told["models"][0]
    assert started["model"]["hash"]
    assert config["sample_rate_hertz"] == told["rate_hertz"]
    assert config["audio_channel_count"] == 1
    assert config["target_language_codes"] == ["de"]
    assert config["catch_up"] == "CATCH_UP_EVERY_SEGMENT"
    assert config["commit_unit"] == "COMMIT_UNIT_WORD"
    assert config["segment_duration"] is not None
    assert {name for name, value in config["policy"].items() if value} <= set(told["policies"])
    assert any(config["policy"].values())


def test_every_segment_is_told_after_its_words(told: dict):
    """Segments count from 1 in each utterance; what was released since the last is its own."""
    numbers: dict[int, int] = {}
    end_sample, waiting = 0, []
    for response in told["responses"]:
        if response["kind"] == "committed":
            waiting += response["items"]
        if response["kind"] == "segment_done":
            utterance = response["utterance"]
            numbers[utterance] = numbers.get(utterance, 0) + 1
            assert response["segment"] == numbers[utterance]
            assert response["item_count"] == len(waiting)
            assert all(item["delay_samples"] == response["end_sample"] for item in waiting)
            assert all(item["utterance"] == utterance for item in waiting)
            assert response["merged_segments"] == 0
            assert response["computation_ms"] >= 0
            assert response["end_sample"] >= end_sample
            end_sample, waiting = response["end_sample"], []
    assert waiting == []
    assert end_sample == told["sample_count"]


def test_committed_text_is_only_ever_appended(told: dict):
    """Words without blanks around them, in the order of the audio received, never taken back."""
    items = items_of(told)
    assert items
    assert all(item["text"] and item["text"] == item["text"].strip() for item in items)
    assert {item["target_language_code"] for item in items} == {"de"}
    for before, after in itertools.pairwise(items):
        assert before["utterance"] <= after["utterance"]
        assert before["delay_samples"] <= after["delay_samples"]
        assert before["elapsed_ms"] <= after["elapsed_ms"]
    for item in items:
        assert 0 <= item["source_start_sample"] < item["source_end_sample"]
        assert item["source_end_sample"] <= item["delay_samples"] <= told["sample_count"]
        assert item["elapsed_ms"] >= item["delay_samples"] * 1000 / told["rate_hertz"]
        assert item["stage_timings"] is None


def test_acknowledged_audio_only_grows(told: dict):
    """Audio from the acknowledged position on is all that a new session would need."""
    ends = {end["utterance"]: end for end in of(told, "end_of_utterance")}
    committed = of(told, "committed")
    acknowledged = [response["acknowledged_samples"] for response in committed]
    assert acknowledged == sorted(acknowledged)
    for response in committed:
        assert response["items"]
        assert 0 < response["resume_token"] <= 4096
        for item in response["items"]:
            assert response["acknowledged_samples"] <= ends[item["utterance"]]["start_sample"]


def test_utterances_cover_the_audio_without_a_gap(told: dict):
    """Each begins where the one before ended; the last ends with the audio."""
    ends = of(told, "end_of_utterance")
    borders = [ends[0]["start_sample"], *(end["end_sample"] for end in ends)]
    assert [end["utterance"] for end in ends] == list(range(len(ends)))
    assert [end["start_sample"] for end in ends] == borders[:-1]
    assert (borders[0], borders[-1]) == (0, told["sample_count"])
    assert ends[-1]["cause"] == "UTTERANCE_END_CAUSE_END_OF_AUDIO"
    assert {end["source_transcript"] for end in ends} == {""}


def test_the_summary_adds_up(told: dict):
    """Its counts are those of the responses before it."""
    summary, items = of(told, "summary")[0], items_of(told)
    assert summary["audio_samples"] == told["sample_count"]
    assert summary["item_count"] == len(items)
    assert summary["word_count"] == sum(item["starts_word"] for item in items)
    assert summary["segment_count"] == len(of(told, "segment_done"))
    assert summary["utterance_count"] == len(of(told, "end_of_utterance"))
    assert summary["merged_segments"] == 0
