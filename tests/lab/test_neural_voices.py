"""What neural voices say, and who they are."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from earvoice.corpus.demo_recording import DEMO_VOICES
from earvoice.corpus.kokoro import speak_with_kokoro
from earvoice.corpus.pico import is_installed, speak_with_pico
from earvoice.corpus.rendering import Request, plan_neural_requests
from earvoice.corpus.sentence import Sentence
from earvoice.corpus.synthesizer import SynthesisError
from earvoice.corpus.voice import (
    Voice,
    draw_neural_voice,
    draw_unseen_engine,
    draw_unseen_neural_voice,
)
from earvoice.training.recipe import TrainingRecipe
from tests.lab.test_dataset import training_data
from tests.lab.tiny_corpus import write_corpus

pytestmark = pytest.mark.torch
HOUR_LETTERS = 14 * 3600
SENTENCES = [
    Sentence(
        key=f"chat-{split}-{index}",
        split=split,
        domain="chat" if index % 2 else "tatoeba",
        group=f"{split}-{index // 8}",
        speaker="agent" if index % 3 else "customer",
        spoken="please tell me more",
        transcript="please tell me more",
        german="x",
        spanish="",
    )
    for split in ("train", "dev")
    for index in range(40)
]


def names(voice: Voice) -> set[str]:
    """The synthesiser's own voices that a voice is made of."""
    return set(voice.name.partition("@")[0].split("+"))


def test_voices_of_the_tests_are_in_no_blend() -> None:
    """No draw for training has a held-out voice, alone or in part."""
    trained = [draw_neural_voice(random.Random(seed)) for seed in range(2_000)]
    unseen = [draw_unseen_neural_voice(random.Random(seed)) for seed in range(200)]
    unseen += DEMO_VOICES.values()
    assert len({voice.name for voice in unseen}) > 1
    assert any(len(names(voice)) == 2 for voice in trained)
    assert not set().union(*map(names, trained)) & set().union(*map(names, unseen))


def test_dev_is_spoken_by_unseen_voices_and_comes_first() -> None:
    """Every customer-chat sentence of dev, whatever the hours."""
    requests = plan_neural_requests(SENTENCES, 1, hours=0.0)
    assert [request.sentence for request in requests] == [
        row.key for row in SENTENCES if row.split == "dev" and row.domain == "chat"
    ]
    assert all(request.key == f"{request.sentence}/neural" for request in requests)
    heard = set().union(*(names(request.voice) for request in requests))
    assert not heard & names_of_training(plan_neural_requests(SENTENCES, 1, 9.0))


def names_of_training(requests: Sequence[Request]) -> set[str]:
    """All voices of the train sentences."""
    return set().union(*(names(row.voice) for row in requests if "-train-" in row.key))


def test_hours_end_the_draw_and_leave_its_beginning() -> None:
    """More hours add sentences; those before and their voices stay."""
    letters = len(SENTENCES[0].spoken)
    some = plan_neural_requests(SENTENCES, 1, hours=20 * letters / HOUR_LETTERS)
    every = plan_neural_requests(SENTENCES, 1, hours=9.0)
    assert len(some) == 20 + 20
    assert every[: len(some)] == some
    assert len(every) == 20 + 40
    assert every == plan_neural_requests(SENTENCES, 1, hours=9.0)
    assert every != plan_neural_requests(SENTENCES, 2, hours=9.0)


def test_a_conversation_stays_together_and_a_speaker_keeps_the_voice() -> None:
    """What is said once more can be joined as before."""
    train = plan_neural_requests(SENTENCES, 1, hours=9.0)[20:]
    rows = {row.key: row for row in SENTENCES}
    groups = [rows[request.sentence].group for request in train]
    assert groups == [name for name in dict.fromkeys(groups) for _ in range(8)]
    voices = {(rows[r.sentence].group, rows[r.sentence].speaker): r.voice for r in train}
    for request in train:
        row = rows[request.sentence]
        assert request.voice == voices[row.group, row.speaker]


@pytest.mark.parametrize(("again", "repeats"), [("/neural", 3), ("/again", 1)])
def test_a_second_speaking_is_a_conversation_of_its_own(
    tmp_path: Path, again: str, repeats: int
) -> None:
    """It is joined with its like alone; neural voices are heard more often."""
    write_corpus(tmp_path, again=again)
    recipe = TrainingRecipe(neural_repeats=3)
    pool = training_data(tmp_path, recipe).pool()
    first, second = pool[:40], pool[40:]
    assert [clip.group + again for clip in first] == [clip.group for clip in second]
    assert {clip.repeats for clip in first if clip.translated} == {1}
    assert {clip.repeats for clip in second if clip.translated} == {repeats}
    assert {clip.repeats for clip in pool if not clip.translated} == {recipe.real_repeats}


@pytest.mark.parametrize("text", ["hello", ""])
def test_what_is_missing_is_named(tmp_path: Path, text: str, apart: ProcessPoolExecutor) -> None:
    """Without its packages or files the synthesiser says so."""
    voice = Voice("kokoro", "af_sky+am_puck@0.40")
    with pytest.raises(SynthesisError, match=r"kokoro"):
        apart.submit(speak_with_kokoro, tmp_path, voice, text).result()


def test_it_speaks(kokoro: Path, apart: ProcessPoolExecutor) -> None:
    """Real words by a real voice, as loud as every other engine; a blend is another speaker."""
    text = "Hello, how can I help you today?"
    said = [
        apart.submit(speak_with_kokoro, kokoro, Voice("kokoro", name), text)
        for name in ("am_puck", "af_sky", "af_sky+am_puck@0.40")
    ]
    waves = [speech.result() for speech in said]
    for wave in waves:
        assert wave.dtype == np.int16
        assert 1.0 < len(wave) / 16_000 < 5.0
        assert np.sqrt(np.mean(np.square(wave / 32_768))) == pytest.approx(0.05, rel=0.05)
    assert len({wave.tobytes() for wave in waves}) == len(waves)
    with pytest.raises(SynthesisError, match=r"allowed: 1 to 510"):
        apart.submit(speak_with_kokoro, kokoro, Voice("kokoro", "af_sky"), "word " * 400).result()
    with pytest.raises(SynthesisError, match="'nobody'"):
        apart.submit(speak_with_kokoro, kokoro, Voice("kokoro", "nobody"), text).result()


def test_the_longest_text_that_is_allowed_is_said(kokoro: Path, apart: ProcessPoolExecutor) -> None:
    """A voice's styles end one short of the most phonemes."""
    text = " ".join(["a"] * 255)
    wave = apart.submit(speak_with_kokoro, kokoro, Voice("kokoro", "af_sky", rate=2.0), text)
    assert len(wave.result()) > 16_000


def test_the_engine_of_the_tests_speaks() -> None:
    """Pico says more words longer, and faster when asked; not installed, it says so."""
    voice = draw_unseen_engine(random.Random(1))
    if not is_installed():
        with pytest.raises(SynthesisError, match="ttspico"):
            speak_with_pico(voice, "hello")
        return
    short, long = (speak_with_pico(voice, "well " * count) for count in (4, 8))
    assert 0.5 < len(short) / 16_000 < 5.0
    assert 1.5 * len(short) < len(long) < 2.5 * len(short)
    quick = speak_with_pico(replace(voice, rate=2 * voice.rate), "well " * 8)
    assert len(quick) < 0.8 * len(long)


@pytest.fixture
def apart() -> Iterator[ProcessPoolExecutor]:
    """A process of its own: Kokoro's reader brings an espeak-ng library that would hide ours."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def kokoro() -> Path:
    """The synthesiser, where `make neural-voices` has brought it."""
    folder = Path(".work/kokoro").absolute()
    pytest.importorskip("onnxruntime")
    pytest.importorskip("misaki")
    if not folder.is_dir():
        pytest.skip("no neural voices: make test-tools brings them")
    return folder
