"""Held-out sentences joined to inputs as a conversation has them, and spoken with word times."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from earvoice.corpus.espeak_library import speak_with_espeak_timed
from earvoice.corpus.festival_timing import speak_with_festival_timed
from earvoice.corpus.flite_library import speak_with_flite_timed
from earvoice.corpus.synthesizer import SAMPLE_RATE_HZ
from earvoice.corpus.voice import draw_training_voice, draw_unseen_speaker, draw_unseen_voice
from earvoice.corpus.word_timing import TimedSpeech

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from earvoice.corpus.sentence import Sentence
    from earvoice.corpus.voice import Voice

VOICE_KINDS: dict[str, Callable[[random.Random], Voice]] = {
    "seen": draw_training_voice,
    "unseen": draw_unseen_voice,
    "speaker": draw_unseen_speaker,
}
"""Voices of training, unseen variants of a seen engine, and a speaker never heard."""

_KIND_ORDER = ("unseen", "seen", "unseen", "speaker", "seen")
_LETTERS_PER_SECOND = 14.0
_WANTED_S = (7.0, 14.0)
_LONGEST_S = 17.0
_PAUSE_S = (0.15, 0.8)
_EDGE_S = (0.1, 0.4)
_NOISE_RMS = 3e-4
_INT16_SCALE = 32_767


@dataclass(frozen=True)
class TestInput:
    """What one input says, and by whom.

    Attributes:
        sentences: neighbours of one domain.
        kind: one of `VOICE_KINDS`.
        voices: of each sentence.
        seed: of its pauses and noise.
    """

    __test__ = False

    sentences: tuple[Sentence, ...]
    kind: str
    voices: tuple[Voice, ...]
    seed: int


def plan_inputs(sentences: Sequence[Sentence], seed: int) -> list[TestInput]:
    """Join all sentences, each once, to inputs of about 6 to 16 s, in a shuffled order.

    A group's speaker keeps one voice within an input. Of five inputs two have unseen variants,
    two training voices and one the unseen speaker.
    """
    rows = _rows(sentences, random.Random(f"{seed}/rows"))
    random.Random(f"{seed}/order").shuffle(rows)
    inputs = []
    for index, row in enumerate(rows):
        generator = random.Random(f"{seed}/{row[0].key}")
        kind = _KIND_ORDER[index % len(_KIND_ORDER)]
        speakers = {
            speaker: VOICE_KINDS[kind](generator) for speaker in dict.fromkeys(map(_speaker, row))
        }
        voices = tuple(speakers[_speaker(sentence)] for sentence in row)
        inputs.append(TestInput(tuple(row), kind, voices, generator.getrandbits(32)))
    return inputs


def speak_input(planned: TestInput) -> TimedSpeech:
    """Speak an input, with natural pauses and a faint noise floor.

    Raises:
        SynthesisError: an engine failed, or cannot tell when it says what.
    """
    generator = np.random.default_rng(planned.seed)
    parts = [_silence(generator, _EDGE_S)]
    words = []
    for number, speech in enumerate(_speak_sentences(planned)):
        if number:
            parts.append(_silence(generator, _PAUSE_S))
        begin_ms = 1000 * sum(map(len, parts)) / SAMPLE_RATE_HZ
        words += [word.moved(begin_ms) for word in speech.words]
        parts.append(speech.samples)
    parts.append(_silence(generator, _EDGE_S))
    joined = np.concatenate(parts).astype(np.float64)
    joined += generator.normal(0.0, _NOISE_RMS * _INT16_SCALE, len(joined))
    clipped = np.clip(np.round(joined), -_INT16_SCALE, _INT16_SCALE)
    return TimedSpeech(clipped.astype(np.int16), tuple(words))


def _speaker(sentence: Sentence) -> tuple[str, str]:
    return sentence.group, sentence.speaker


def _rows(sentences: Sequence[Sentence], generator: random.Random) -> list[list[Sentence]]:
    rows: list[list[Sentence]] = []
    row: list[Sentence] = []
    wanted_s = generator.uniform(*_WANTED_S)
    for sentence in sentences:
        other = bool(row) and row[-1].domain != sentence.domain
        if row and (other or _seconds([*row, sentence]) > _LONGEST_S or _seconds(row) >= wanted_s):
            rows.append(row)
            row = []
            wanted_s = generator.uniform(*_WANTED_S)
        row.append(sentence)
    return [*rows, row] if row else rows


def _seconds(row: Sequence[Sentence]) -> float:
    return sum(len(sentence.spoken) / _LETTERS_PER_SECOND + _PAUSE_S[1] / 2 for sentence in row)


def _speak_sentences(planned: TestInput) -> list[TimedSpeech]:
    texts = [" ".join(said_words(sentence.spoken)) for sentence in planned.sentences]
    pairs = list(zip(planned.voices, texts, strict=True))
    festival = [pair for pair in pairs if pair[0].engine == "festival"]
    asked = iter(speak_with_festival_timed(festival) if festival else ())
    return [
        next(asked) if voice.engine == "festival" else _speak_alone(voice, text)
        for voice, text in pairs
    ]


def said_words(spoken: str) -> list[str]:
    """Return the words of a spoken form; signs that stand alone are not words."""
    return [word for word in spoken.split() if any(letter.isalnum() for letter in word)]


def _speak_alone(voice: Voice, text: str) -> TimedSpeech:
    if voice.engine == "flite":
        return speak_with_flite_timed(voice, text)
    return speak_with_espeak_timed(voice, text)


def _silence(generator: np.random.Generator, range_s: tuple[float, float]) -> NDArray[np.int16]:
    return np.zeros(round(generator.uniform(*range_s) * SAMPLE_RATE_HZ), np.int16)
