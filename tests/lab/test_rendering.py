"""Speaking a corpus in shards: what is lost, what stays, and what is spoken anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from earvoice.corpus.clip_store import ClipStore
from earvoice.corpus.rendering import Request, render
from earvoice.corpus.synthesizer import EngineMissingError, SynthesisError
from earvoice.corpus.voice import Voice

VOICE = Voice("espeak", "en-us")
REQUESTS = [Request(f"k{n}", f"s{n}", VOICE, f"sentence {n}") for n in range(5)]


def say(voice: Voice, text: str) -> NDArray[np.int16]:
    """As many samples as letters."""
    return np.zeros(len(text), np.int16)


def say_some(voice: Voice, text: str) -> NDArray[np.int16]:
    """One that stumbles."""
    if text.endswith("1"):
        raise SynthesisError("it stumbles")
    return say(voice, text)


def say_nothing(voice: Voice, text: str) -> NDArray[np.int16]:
    """One that fails whatever it is given."""
    raise SynthesisError("no such voice")


def is_missing(voice: Voice, text: str) -> NDArray[np.int16]:
    """One that is not installed."""
    raise EngineMissingError("where is it?")


def spoken(folder: Path) -> list[str]:
    """The keys of all clips."""
    return [clip.key for clip, _ in ClipStore(folder).read_all()]


def test_a_sentence_that_cannot_be_said_is_left_out(tmp_path: Path) -> None:
    """The others of its shard are there."""
    render(REQUESTS, tmp_path, 1, say_some, 3)
    assert spoken(tmp_path) == ["k0", "k2", "k3", "k4"]


@pytest.mark.parametrize("speaker", [say_nothing, is_missing])
def test_an_engine_that_is_not_there_leaves_no_shard(tmp_path: Path, speaker) -> None:
    """So the same command speaks them all once it is."""
    with pytest.raises(EngineMissingError):
        render(REQUESTS, tmp_path, 1, speaker, 3)
    assert ClipStore(tmp_path).shards() == []
    render(REQUESTS, tmp_path, 1, say, 3)
    assert len(spoken(tmp_path)) == 5


def test_more_requests_fill_the_last_shard_up(tmp_path: Path) -> None:
    """A shard that was full stays; nobody asks its speaker again."""
    render(REQUESTS[:4], tmp_path, 1, say, 3)
    first_s = ClipStore(tmp_path).written_s(0)
    render(REQUESTS, tmp_path, 1, say, 3)
    assert spoken(tmp_path) == ["k0", "k1", "k2", "k3", "k4"]
    assert ClipStore(tmp_path).written_s(0) == first_s


def test_another_text_under_the_same_key_is_spoken_anew(tmp_path: Path) -> None:
    """And so is the same by another voice."""
    render(REQUESTS, tmp_path, 1, say, 5)
    render([replace(REQUESTS[0], text="other"), *REQUESTS[1:]], tmp_path, 1, say, 5)
    assert next(ClipStore(tmp_path).read_all())[0].samples == len("other")
