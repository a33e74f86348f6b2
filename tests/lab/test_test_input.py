"""Held-out inputs that training has neither read nor heard."""

import random

import numpy as np
import pytest

from earvoice.corpus.sentence import Sentence
from earvoice.corpus.telephone_line import send_over_line
from earvoice.corpus.test_input import plan_inputs, said_words
from earvoice.corpus.voice import draw_training_voice

pytestmark = pytest.mark.torch
SENTENCES = [
    Sentence(
        key=f"s-{index}",
        split="dev",
        domain="chat" if index < 50 else "tatoeba",
        group=f"g-{index // 6}",
        speaker="agent" if index % 2 else "customer",
        spoken="please tell me - more about the car" * (1 + index % 3),
        transcript="",
        german="x",
        spanish="",
    )
    for index in range(80)
]


def test_every_sentence_is_said_once_in_one_domain() -> None:
    """Inputs hold neighbours; nothing is lost or repeated."""
    inputs = plan_inputs(SENTENCES, 1)
    assert sorted(s.key for row in inputs for s in row.sentences) == sorted(
        s.key for s in SENTENCES
    )
    for row in inputs:
        assert len({sentence.domain for sentence in row.sentences}) == 1
        assert len(row.voices) == len(row.sentences)


def test_plans_are_repeatable() -> None:
    """The seed decides everything."""
    assert plan_inputs(SENTENCES, 1) == plan_inputs(SENTENCES, 1)
    assert plan_inputs(SENTENCES, 1) != plan_inputs(SENTENCES, 2)


def test_unseen_voices_are_none_of_training() -> None:
    """No draw for training gives a voice of an unseen variant or of the unseen speaker."""
    trained = {draw_training_voice(random.Random(seed)).name for seed in range(3_000)}
    variants = {name.partition("+")[2] for name in trained}
    unseen = [
        voice for row in plan_inputs(SENTENCES, 1) if row.kind != "seen" for voice in row.voices
    ]
    assert unseen
    for voice in unseen:
        assert voice.name not in trained
        assert voice.engine == "festival" or voice.name.partition("+")[2] not in variants


def test_lone_signs_are_not_words() -> None:
    """Only what is said has a time."""
    assert said_words("yes - the 'best' one !") == ["yes", "the", "'best'", "one"]


def test_a_telephone_line_keeps_the_middle_of_the_band() -> None:
    """1 kHz passes; 100 Hz and 5 kHz do not."""
    time_s = np.arange(16_000) / 16_000
    for frequency_hz, passes in ((1_000, True), (100, False), (5_000, False)):
        tone = (8_000 * np.sin(2 * np.pi * frequency_hz * time_s)).astype(np.int16)
        heard = send_over_line(tone)
        assert len(heard) == len(tone)
        share = np.abs(heard.astype(float)).mean() / np.abs(tone.astype(float)).mean()
        assert (share > 0.9) if passes else (share < 0.1)
