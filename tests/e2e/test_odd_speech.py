"""Speech that is odd: too fast, too slow, broken off, with bursts of noise between the words.

Its text may have wrong words, but most are those that were said, and nothing goes round in circles.
"""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from earvoice.training.teacher import loops, words_of
from tests.deploy.tool import program
from tests.e2e.calling import RATE_HERTZ, ROOT, assert_well_formed, call, requests, speech

ASK_NOT = ROOT / "demo" / "inaugural_1961.wav"
SAID = (
    "and so my fellow americans ask not what your country can do for you "
    "ask what you can do for your country"
)

pytestmark = pytest.mark.torch


def at_pace(pace: float) -> bytes:
    """The recording so many times as fast, at the same pitch."""
    command = [
        program("ffmpeg"),
        "-nostdin",
        "-loglevel",
        "error",
        "-i",
        ASK_NOT,
        "-af",
        f"atempo={pace}",
    ]
    output = ["-f", "s16le", "-ac", "1", "-ar", str(RATE_HERTZ), "-"]
    return subprocess.run([*command, *output], check=True, stdout=subprocess.PIPE).stdout


def broken_off() -> bytes:
    """In the middle of a word, and then nothing more."""
    return speech(ASK_NOT)[: 2 * int(6.2 * RATE_HERTZ)]


def coughed() -> bytes:
    """With a burst of noise of a quarter of a second every second and a half."""
    samples = np.frombuffer(speech(ASK_NOT), "<i2").astype(np.float32)
    burst = np.random.default_rng(3).normal(0, 6000, RATE_HERTZ // 4)
    burst *= np.exp(-np.linspace(0, 6, len(burst)))
    for begin in range(RATE_HERTZ, len(samples) - len(burst), 3 * RATE_HERTZ // 2):
        samples[begin : begin + len(burst)] += burst
    return samples.clip(-32768, 32767).astype("<i2").tobytes()


SPEECH = {
    "twice as fast": lambda: at_pace(2.0),
    "half as fast": lambda: at_pace(0.5),
    "broken off": broken_off,
    "coughed": coughed,
}


@pytest.mark.parametrize("name", SPEECH)
async def test_odd_speech_stays_plausible(services, name: str):
    """In captions; what is translated is made of these."""
    outcome = await call(services.address, requests(SPEECH[name](), target_language_codes=["en"]))
    assert_well_formed(outcome)
    text = " ".join(item.text for item in outcome.items)
    words, said = words_of(text), words_of(SAID)
    assert len(words) >= len(said) / 3, text
    assert sum(word in said for word in words) >= 0.6 * len(words), text
    assert not loops(text), text
