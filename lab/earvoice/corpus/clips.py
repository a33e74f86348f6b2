"""The clips of training: real recordings, synthesised sentences, and sound without speech."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from earvoice.corpus.espeak_library import speak_with_espeak_timed
from earvoice.corpus.flite_library import speak_with_flite_timed
from earvoice.corpus.hibari import speak_with_hibari
from earvoice.corpus.pico import speak_with_pico
from earvoice.corpus.recipe import (
    FOREIGN_LANGUAGES,
    LEAST_SPOKEN_WORDS,
    SOURCE_LANGUAGE,
    SPOKEN_SHARES,
)
from earvoice.corpus.sound import (
    INT16_SCALE,
    SAMPLE_RATE_HZ,
    Sound,
    babble,
    coloured_noise,
    music,
)
from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.corpus.texts import Pair, Split, comparison_key
from earvoice.corpus.voice import Engine, Voice, draw_foreign_voice, draw_training_voice

JOINED_SHARE = 0.3
LONGEST_JOINED_LETTERS = 220
LONGEST_NOTHING_S = 8
NOTHING_KINDS = ("silence", "noise", "music", "babble", "language", "language")
LJSPEECH_DEV_EVERY = 12


@dataclass
class Clip:
    """What is said in a clip and what it means.

    `texts` is by language tag; English is the words as spoken, cased and punctuated. A clip that
    says nothing has the empty text in every language.
    """

    key: str
    source: str
    split: Split
    speaker: str = ""
    condition: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    transcript: str = ""
    """As published with the recording, often without case; empty if there is none."""
    begin_frame: int = 0
    """Start within the recording, in frames of 40 ms, if the clip is a part of one."""

    @property
    def recording(self) -> str:
        """The key of the clip that this one was made from, or its own."""
        return self.key.partition("/")[0]

    def worsened(self) -> Self:
        return replace(self, key=f"{self.key}/worse")

    def cut(self) -> Self:
        return replace(self, key=f"{self.key}/cut", condition="cut")

    def phrase(self, number: int) -> Self:
        """A part that begins after a pause."""
        return replace(self, key=f"{self.key}/phrase-{number}", condition="cut")

    @property
    def is_worsened(self) -> bool:
        return self.key.endswith("/worse")

    @property
    def is_cut(self) -> bool:
        """Whether the sound may end before the words do."""
        return self.condition == "cut"

    @property
    def is_phrase(self) -> bool:
        return "/phrase-" in self.key

    @property
    def english(self) -> str | None:
        return self.texts.get(SOURCE_LANGUAGE)

    @property
    def said(self) -> str | None:
        """The words, lower case, numbers as words; None where they are not known."""
        text = self.transcript or self.english
        return None if text is None else transcript(spoken_form(text))


def read_people(speech: Path) -> list[tuple[Clip, Path]]:
    """Every real recording, with its transcript where there is one."""
    clips = []
    with (speech / "people" / "people.tsv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            path = speech / "people" / row["file"]
            split = cast("Split", row["split"])
            clip = Clip(path.stem, row["source"], split, row["speaker"], row["condition"],
                        transcript=row["transcript"] or "")  # fmt: skip
            clips.append((clip, path))
    with (speech / "ljspeech" / "transcripts.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for index, row in enumerate(rows):
            split = "dev" if index % LJSPEECH_DEV_EVERY == 0 else "train"
            clip = Clip(row["utt"], "ljspeech", split, "ljspeech", "read, one reader",
                        transcript=row["transcript_raw"])  # fmt: skip
            clips.append((clip, speech / "ljspeech" / f"{row['utt']}.flac"))
    for path in sorted((speech / "librispeech-unlabelled").glob("*.flac")):
        speaker = path.stem.split("-")[0]
        split = "dev" if int(speaker) % 5 == 0 else "train"
        clip = Clip(path.stem, "librispeech-unlabelled", split, f"ls{speaker}", "read audiobook")
        clips.append((clip, path))
    return clips


def without_held_out_texts(clips: Sequence[tuple[Clip, Path]]) -> list[tuple[Clip, Path]]:
    """Leave out of the train split what speakers of the dev or test split read, too."""
    held_out = {comparison_key(c.transcript or "") for c, _ in clips if c.split != "train"} - {""}
    return [
        (clip, path)
        for clip, path in clips
        if clip.split != "train" or comparison_key(clip.transcript or "") not in held_out
    ]


def plan_spoken(pairs: Sequence[Pair], seed: int) -> list[list[Pair]]:
    """Choose the sentences to synthesise; some that follow each other are joined into one input."""
    generator = random.Random(f"{seed}/spoken")
    chosen = [
        pair
        for pair in pairs
        if pair.split == "train"
        and pair.translations
        and len(pair.english.split()) >= LEAST_SPOKEN_WORDS.get(pair.source, 2)
        and generator.random() < SPOKEN_SHARES.get(pair.source, 0.0)
    ]
    inputs: list[list[Pair]] = []
    for pair in chosen:
        last = inputs[-1] if inputs else []
        joins = (
            last
            and generator.random() < JOINED_SHARE
            and last[-1].source == pair.source
            and (last[-1].group == pair.group)
            and last[-1].translations.keys() == pair.translations.keys()
            and sum(len(each.english) for each in (*last, pair)) < LONGEST_JOINED_LETTERS
        )
        if joins:
            last.append(pair)
        else:
            inputs.append([pair])
    generator.shuffle(inputs)
    return inputs


def say(voice: Voice, text: str) -> Sound:
    """Speak English text, normalised to its spoken form: [n] float32 at 16 kHz.

    Raises:
        SynthesisError: the engine said nothing.
        MissingEngineError: it is not installed.
    """
    return speak(voice, spoken_form(text))


def speak(voice: Voice, text: str) -> Sound:
    """Like `say`, but with the text unchanged and in the voice's language."""
    return np.float32(1 / INT16_SCALE) * _ENGINES[voice.engine](voice, text).astype(np.float32)


_ENGINES: Mapping[Engine, Callable[[Voice, str], NDArray[np.int16]]] = {
    "espeak-ng": lambda voice, text: speak_with_espeak_timed(voice, text)[0],
    "flite": lambda voice, text: speak_with_flite_timed(voice, text)[0],
    "hibari": speak_with_hibari,
    "pico": speak_with_pico,
}


def say_input(sentences: Sequence[Pair], generator: random.Random) -> Sound:
    """Sentences that follow each other; each speaker keeps a voice."""
    voices: dict[str, Voice] = {}
    parts: list[Sound] = []
    for pair in sentences:
        voice = voices.setdefault(pair.speaker, draw_training_voice(generator))
        pause_s = generator.uniform(0.1, 0.8) if parts else generator.uniform(0.0, 0.3)
        parts += [np.zeros(int(pause_s * SAMPLE_RATE_HZ), np.float32), say(voice, pair.english)]
    parts.append(np.zeros(int(generator.uniform(0.0, 0.4) * SAMPLE_RATE_HZ), np.float32))
    return np.concatenate(parts)


def nothing(
    index: int, voices: list[Sound], translations: Mapping[str, Sequence[str]], seed: int
) -> tuple[str, Sound]:
    """Sound in which nobody speaks English: its kind and [n] float32."""
    generator = np.random.default_rng((seed, index))
    count = int(generator.uniform(0.3, LONGEST_NOTHING_S) * SAMPLE_RATE_HZ)
    kind = NOTHING_KINDS[index % len(NOTHING_KINDS)]
    if kind == "silence":
        return kind, np.asarray(
            generator.standard_normal(count) * 10 ** generator.uniform(-6, -3), np.float32
        )
    if kind == "noise":
        return kind, coloured_noise(count, generator) * np.float32(generator.uniform(0.02, 0.6))
    if kind == "music":
        return kind, music(count, generator)
    if kind == "babble":
        return kind, babble(count, voices, generator)
    tag = FOREIGN_LANGUAGES[generator.integers(len(FOREIGN_LANGUAGES))]
    text = translations[tag if tag in translations else next(iter(translations))]
    sentence = text[int(generator.integers(len(text)))]
    voice = draw_foreign_voice(tag, random.Random(f"{seed}/{index}"))
    return f"{kind} {tag}", speak(voice, sentence)[: LONGEST_NOTHING_S * SAMPLE_RATE_HZ]
