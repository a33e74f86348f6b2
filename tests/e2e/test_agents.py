"""Agents of LiveKit and Pipecat hear through our services (docs/clients.md)."""

from __future__ import annotations

import json
import subprocess
import wave
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from earvoice.client import (
    AudioFormat,
    Committed,
    EndOfUtterance,
    TranslationOptions,
    connect,
    join_words,
)
from tests.e2e.running import ROOT, Running

pytestmark = pytest.mark.torch

RECORDING = ROOT / "demo" / "inaugural_1961.wav"
LANGUAGES = ("en", "de")


def told_by(tool: str, script: str, services: Running, language: str) -> list[dict[str, Any]]:
    """What an agent's script prints about the recording."""
    python = ROOT / ".work" / tool / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{tool} is not installed: make test-tools installs it")
    done = subprocess.run(
        [python, Path(__file__).parent / "agents" / script, services.address, RECORDING, language],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def texts(told: list[dict[str, Any]], kind: str) -> list[str]:
    return [line["text"] for line in told if line["kind"] == kind]


async def utterances(services: Running, language: str) -> list[str]:
    """What our own client gets of each utterance."""
    with wave.open(str(RECORDING)) as file:
        audio, rate_hz = file.readframes(file.getnframes()), file.getframerate()

    async def recording():
        yield audio

    options = TranslationOptions(
        (language,), AudioFormat("linear16", rate_hz), catch_up="every-segment"
    )
    found, words = [], []
    async with connect(services.address) as client:
        async for event in client.translate(recording(), options):
            if isinstance(event, Committed):
                words += event.words
            elif isinstance(event, EndOfUtterance):
                found.append(join_words(words))
                words = []
    return [text for text in found if text]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_livekit_hears_every_utterance(services: Running, language: str):
    told = told_by("livekit", "livekit_ears.py", services, language)
    expected = await utterances(services, language)
    assert texts(told, "final_transcript") == expected
    assert texts(told, "at once") == [" ".join(expected)]
    interim = ""
    for line in told:
        if line["kind"] == "start_of_speech":
            interim = ""
        if line["kind"] == "interim_transcript":
            assert line["text"].startswith(interim)
            interim = line["text"]
        if line["kind"] == "final_transcript":
            assert line["text"] == interim
            assert " ".join(word for word, _, _ in line["words"]) == interim
            assert all(begin < end for _, begin, end in line["words"])
            assert line["language"] == language
            is_translated = language != "en"
            assert line["source_languages"] == (["en"] if is_translated else None)
            assert line["target_texts"] == ([interim] if is_translated else None)
    ends = [line["words"][-1][2] for line in told if line["kind"] == "final_transcript"]
    assert all(before < after for before, after in pairwise(ends))
    heard_s = sum(line["audio_s"] for line in told if line["kind"] == "recognition_usage")
    assert heard_s == pytest.approx(11.0, abs=0.1)


async def test_pipecat_gets_captions(services: Running):
    told = told_by("pipecat", "pipecat_pipeline.py", services, "en")
    expected = await utterances(services, "en")
    assert texts(told, "TranscriptionFrame") == expected
    # A voice would say what the speaker has said: it leaves transcriptions alone.
    assert texts(told, "spoken") == []
    assert set(expected) <= set(texts(told, "InterimTranscriptionFrame"))
    assert {line["language"] for line in told} == {"en"}


async def test_a_voice_in_pipecat_says_the_translation(services: Running):
    told = told_by("pipecat", "pipecat_pipeline.py", services, "de")
    expected = " ".join(await utterances(services, "de"))
    assert "".join(texts(told, "TranslationFrame")).strip() == expected
    assert " ".join(texts(told, "spoken")) == expected


@pytest.mark.parametrize(
    ("tool", "script"), [("livekit", "livekit_ears.py"), ("pipecat", "pipecat_pipeline.py")]
)
def test_a_language_that_is_not_served_is_refused_by_name(
    services: Running, tool: str, script: str
):
    (refused,) = told_by(tool, script, services, "tlh")
    assert refused["kind"] == "error"
    assert "'tlh'" in refused["text"]
    assert "de" in refused["text"]
