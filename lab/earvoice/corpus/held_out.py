"""Test sets on disk: sounds, references, and when each word was said.

In each folder: ``NUMBER.wav`` (16 kHz, mono), ``wavs.txt`` (their paths), ``source.txt`` (what is
said), ``refs.TAG.txt``, and ``words.jsonl`` (start and end of each word) where a synthesiser knows
them. Line n of each file belongs to the same input.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, count, cycle, islice, product, repeat
from pathlib import Path

import numpy as np
import soundfile

from earvoice.corpus.build import MOST_DRAWS, one_after_another
from earvoice.corpus.clips import NOTHING_KINDS, nothing, read_people, say, speak
from earvoice.corpus.espeak_library import speak_with_espeak_timed
from earvoice.corpus.flite_library import speak_with_flite_timed
from earvoice.corpus.pico import is_installed
from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.sound import (
    INT16_SCALE,
    SAMPLE_RATE_HZ,
    Sound,
    coloured_noise,
    over_telephone,
    read_sound,
    with_noise,
)
from earvoice.corpus.spoken import said_words, spoken_form
from earvoice.corpus.synthesizer import SynthesisError
from earvoice.corpus.texts import Pair, Split
from earvoice.corpus.voice import (
    Voice,
    draw_foreign_pico,
    draw_foreign_voice,
    draw_pico,
    draw_training_voice,
    draw_unseen_voice,
)
from earvoice.corpus.word_timing import TimedSpeech
from earvoice.evaluation.log import SpokenWord

NOISE_SNR_DB = 10.0
NOTHING_SEEDS: dict[Split, int] = {"test": 6_000, "dev": 12_000}
"""Multiples of the number of kinds; training uses other seeds."""
SHORT_ANSWERS = (
    "Yes.", "No.", "Okay.", "Thank you.", "Hello?", "That's right.", "Yes, please.", "I see.",
    "No, thanks.", "Four.", "Good morning.", "Sorry?", "Monday.", "One moment.", "Large, please.",
)  # fmt: skip
MINUTE_S = 60.0
MINUTES_OF_A_LANGUAGE = 2
"""For each engine."""
LEAST_SENTENCE_WORDS = 6
SILENCE_SAMPLES = SAMPLE_RATE_HZ // 2
_LETTERS_PER_SECOND = 14.0
_WANTED_S = (7.0, 14.0)
_LONGEST_S = 17.0
_SHORTEST_S = 6.0
_PAUSE_S = (0.15, 0.8)
_NOISE_RMS = 3e-4


@dataclass
class TestInput:
    """One sound and its annotations."""

    __test__ = False

    sound: Sound
    said: str
    references: dict[str, str] = field(default_factory=dict)
    words: Sequence[SpokenWord] = ()


def write_people(speech: Path, out: Path, split: str, count: int) -> None:
    """Real readers: as recorded, over a telephone line, with noise, with a foreign accent.

    ``real`` joins the first and the last of these.

    Args:
        speech: folder of the recordings.
        out: where a folder is made for each condition.
        split: ``dev`` or ``test``.
        count: most clips of each condition, in an order fixed by the file names.
    """
    clips = [(clip, path) for clip, path in read_people(speech) if clip.split == split]
    random.Random(split).shuffle(clips)

    def of(
        source: str, change: Callable[[Sound], Sound] = lambda sound: sound
    ) -> Iterator[TestInput]:
        known = [(clip, path) for clip, path in clips if clip.source == source and clip.transcript]
        for clip, path in known[:count]:
            yield TestInput(change(read_sound(path)), clip.transcript, {"en": clip.transcript})

    def noisy(sound: Sound) -> Sound:
        noise = coloured_noise(len(sound), np.random.default_rng(len(sound)))
        return with_noise(sound, noise, NOISE_SNR_DB)

    write_set(out / "readers", of("librispeech_dev_clean"))
    write_set(out / "readers-telephone", of("librispeech_dev_clean", over_telephone))
    write_set(out / "readers-noise", of("librispeech_dev_clean", noisy))
    write_set(out / "accent", of("speechocean762"))
    real = [*of("librispeech_dev_clean"), *of("speechocean762")]
    write_set(out / "real", real)


def write_nothing(speech: Path, pairs: Sequence[Pair], out: Path, split: Split) -> None:
    """Minutes of silence, noise, music, babble, other languages (two) and speech backwards."""
    seed = NOTHING_SEEDS[split]
    voices = [read_sound(path) for clip, path in read_people(speech) if clip.split == split][:40]
    # Figures of the test set are published: it keeps the sentences that it had, of all splits.
    said = pairs[:500] if split == "test" else [pair for pair in pairs if pair.split == split]
    translations = {TARGET_LANGUAGES[0]: [next(iter(p.translations.values())) for p in said]}
    inputs = []
    for place, kind in enumerate(NOTHING_KINDS):
        if kind == "language" and not said:
            continue
        numbers = islice(count(seed + place, len(NOTHING_KINDS)), MOST_DRAWS)
        pieces = (partial(nothing, n, voices, translations, seed) for n in numbers)
        _, sound = one_after_another(pieces, MINUTE_S)
        inputs.append(TestInput(sound, kind, {SOURCE_LANGUAGE: ""}))
    backwards = (partial(_played_backwards, voice) for voice in islice(cycle(voices), MOST_DRAWS))
    _, sound = one_after_another(backwards, MINUTE_S)
    inputs.append(TestInput(sound, "backwards", {SOURCE_LANGUAGE: ""}))
    write_set(out, inputs)


def _played_backwards(voice: Sound) -> tuple[str, Sound]:
    return "backwards", voice[::-1]


def write_languages(pairs: Sequence[Pair], out: Path, seed: int, split: Split) -> None:
    """Minutes of sentences in the target languages, for which nothing should be written.

    Spoken by espeak-ng, which all parts were trained on in these languages, and, if installed, by
    Pico, which only the CTC branch was trained on.
    """
    draws = (draw_foreign_voice, draw_foreign_pico)[: 1 + is_installed()]
    inputs = []
    for tag in TARGET_LANGUAGES:
        held_out = [p for p in pairs if p.split == split and tag in p.translations]
        for draw, number in product(draws if held_out else (), range(MINUTES_OF_A_LANGUAGE)):
            generator = random.Random(f"{seed}/{tag}/{number}")
            voice = draw(tag, generator)
            if voice is None:
                continue
            piece = partial(_said_after_a_pause, voice, generator, held_out, tag)
            _, sound = one_after_another(repeat(piece, MOST_DRAWS), MINUTE_S)
            said = f"{tag} by {voice.engine}"
            inputs.append(TestInput(sound, said, {SOURCE_LANGUAGE: ""}))
    write_set(out, inputs)


def _said_after_a_pause(
    voice: Voice, generator: random.Random, pairs: Sequence[Pair], tag: str
) -> tuple[str, Sound]:
    pause = np.zeros(int(generator.uniform(*_PAUSE_S) * SAMPLE_RATE_HZ), np.float32)
    return tag, np.concatenate((pause, speak(voice, generator.choice(pairs).translations[tag])))


def write_spoken(pairs: Sequence[Pair], out: Path, seed: int, count: int) -> None:
    """Held-out customer chat and CoCoA-MT, spoken by Pico, on which no decoder was trained."""
    write_set(out / "chat", _said_by(draw_pico, _of(pairs, "customer-chat", "dev")[:count], seed))
    write_set(out / "cocoa", _said_by(draw_pico, _of(pairs, "cocoa_mt", "test")[:count], seed))


def _of(pairs: Sequence[Pair], source: str, split: Split) -> list[Pair]:
    return [pair for pair in pairs if (pair.source, pair.split) == (source, split)]


def write_answers(out: Path, seed: int) -> None:
    """Short answers between half a second of silence, by voices that training never uses."""
    inputs = []
    for draw in (draw_unseen_voice, draw_pico):
        for text in SHORT_ANSWERS:
            sound = say(draw(random.Random(f"{seed}/{text}")), text)
            padded = np.pad(sound, SILENCE_SAMPLES)
            inputs.append(TestInput(padded, text, {SOURCE_LANGUAGE: text}))
    write_set(out, inputs)


def without_published(pairs: Sequence[Pair], seed: int, count: int) -> list[Pair]:
    """Leave out the sentences of `chat` and `joined`, so that nothing is chosen on them."""
    chat = _of(pairs, "customer-chat", "dev")
    # Some rows may be too short, and others take their places.
    rows = _rows(pairs, seed)[: 2 * count]
    published = {pair.english for pair in chain(chat[:count], *rows)}
    return [pair for pair in pairs if pair.english not in published]


def write_sentences(pairs: Sequence[Pair], out: Path, seed: int, count: int) -> None:
    """Held-out sentences for each language, by voices that training never uses.

    If there are fewer than `count`, other voices repeat them. Number formats are compared on these
    sets: with few inputs, chance would hide a real difference.
    """
    for tag in TARGET_LANGUAGES:
        chosen = [
            replace(pair, translations={tag: pair.translations[tag]})
            for pair in pairs
            if pair.split == "dev"
            and tag in pair.translations
            and len(pair.english.split()) >= LEAST_SENTENCE_WORDS
        ]
        if not chosen:
            continue
        rounds = range(-(-count // len(chosen)))
        seeds = [str(seed), *(f"{seed}/{number}" for number in rounds[1:])]
        said = (_said_by(draw_unseen_voice, chosen, own) for own in seeds)
        write_set(out / f"sentences-{tag}", islice(chain.from_iterable(said), count))


def _said_by(
    draw: Callable[[random.Random], Voice], pairs: Sequence[Pair], seed: int | str
) -> Iterator[TestInput]:
    for pair in pairs:
        sound = say(draw(random.Random(f"{seed}/{pair.english}")), pair.english)
        yield TestInput(sound, pair.english, {"en": pair.english, **pair.translations})


def write_joined(pairs: Sequence[Pair], out: Path, seed: int, count: int) -> None:
    """Held-out conversations as inputs of 6 to 17 s, with the time of each word.

    Sentences without a conversation are put together as if they were one: one input in twelve.
    """
    write_set(out, _timed(_rows(pairs, seed), seed, count))


def _rows(pairs: Sequence[Pair], seed: int) -> list[list[Pair]]:
    first = TARGET_LANGUAGES[0]
    held_out = [pair for pair in pairs if pair.split == "dev" and first in pair.translations]
    rows = _joined(held_out, random.Random(f"{seed}/rows"))
    random.Random(f"{seed}/order").shuffle(rows)
    return rows


def _joined(pairs: Sequence[Pair], generator: random.Random) -> list[list[Pair]]:
    rows: list[list[Pair]] = []
    wanted_s = 0.0
    for pair in pairs:
        row = rows[-1] if rows else []
        length_s = sum(len(each.english) for each in (*row, pair)) / _LETTERS_PER_SECOND
        full = sum(len(each.english) for each in row) / _LETTERS_PER_SECOND >= wanted_s
        if not row or full or length_s > _LONGEST_S or row[-1].group != pair.group:
            rows.append([pair])
            wanted_s = generator.uniform(*_WANTED_S)
        else:
            row.append(pair)
    return rows


def _timed(rows: Sequence[Sequence[Pair]], seed: int, count: int) -> Iterator[TestInput]:
    made = 0
    for row in rows:
        if made == count:
            return
        try:
            samples, words = _speak_row(row, seed)
        except SynthesisError as error:
            sys.stderr.write(f"left out: {error}\n")
            continue
        if len(samples) >= SAMPLE_RATE_HZ * _SHORTEST_S:
            made += 1
            texts = {tag: " ".join(p.translations[tag] for p in row) for tag in row[0].translations
                     if all(tag in p.translations for p in row)}  # fmt: skip
            said = " ".join(word.word for word in words)
            sound = np.float32(1 / INT16_SCALE) * samples.astype(np.float32)
            english = " ".join(pair.english for pair in row)
            yield TestInput(sound, said, {"en": english, **texts}, words)


def _speak_row(row: Sequence[Pair], seed: int) -> TimedSpeech:
    """Give each speaker a voice; half of the inputs get voices that training never uses."""
    name = f"{seed}/{row[0].english}"
    generator, drawn = random.Random(name), np.random.default_rng(len(name))
    draw = generator.choice((draw_training_voice, draw_unseen_voice))
    voices: dict[str, Voice] = {}
    parts, words = [], []
    for pair in row:
        while (voice := voices.get(pair.speaker)) is None or voice.engine == "hibari":
            voices[pair.speaker] = draw(generator)
        text = " ".join(said_words(spoken_form(pair.english)))
        timed = speak_with_flite_timed if voice.engine == "flite" else speak_with_espeak_timed
        samples, said = timed(voice, text)
        parts.append(np.zeros(round(generator.uniform(*_PAUSE_S) * SAMPLE_RATE_HZ), np.int16))
        begin_ms = 1000 * sum(map(len, parts)) / SAMPLE_RATE_HZ
        words += [
            SpokenWord(word.word, begin_ms + word.start_ms, begin_ms + word.end_ms) for word in said
        ]
        parts.append(samples)
    joined = np.concatenate(parts) + drawn.normal(
        0.0, _NOISE_RMS * INT16_SCALE, sum(map(len, parts))
    )
    clipped = np.clip(np.round(joined), -INT16_SCALE, INT16_SCALE - 1)
    return clipped.astype(np.int16), tuple(words)


def write_set(folder: Path, inputs: Iterable[TestInput]) -> None:
    """Write one test set, ``wavs.txt`` last."""
    folder.mkdir(parents=True, exist_ok=True)
    given = list(inputs)
    paths = [folder.resolve() / f"{number:04d}.wav" for number in range(1, len(given) + 1)]
    for path, each in zip(paths, given, strict=True):
        soundfile.write(path, np.clip(each.sound, -1, 1), SAMPLE_RATE_HZ, subtype="PCM_16")
    tags = dict.fromkeys(tag for each in given for tag in each.references)
    files = {f"refs.{tag}.txt": [each.references.get(tag, "") for each in given] for tag in tags}
    files["source.txt"] = [each.said for each in given]
    if given and given[0].words:
        files["words.jsonl"] = [json.dumps([asdict(w) for w in each.words]) for each in given]
    files["wavs.txt"] = list(map(str, paths))
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
