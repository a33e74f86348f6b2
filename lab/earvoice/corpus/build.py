"""All clips as shards of states: recordings clean and degraded, synthesised speech, no speech."""

from __future__ import annotations

import math
import random
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np

from earvoice.corpus.clips import (
    NOTHING_KINDS,
    Clip,
    nothing,
    plan_spoken,
    read_people,
    say,
    say_input,
    speak,
    without_held_out_texts,
)
from earvoice.corpus.pico import is_installed
from earvoice.corpus.recipe import (
    BRANCH_BACKWARDS_CLIPS,
    BRANCH_PICO_CLIPS,
    BRANCH_PICO_INPUTS,
    BRANCH_PICO_SHORT_CLIPS,
    BRANCH_SHORT_CLIPS,
    BRANCH_TALK_CLIPS,
    FOREIGN_LANGUAGES,
    FOREIGN_TALK_CLIPS,
    HELD_OUT_SPOKEN,
    LONG_NOTHING_CLIPS,
    MORE_FOREIGN_LANGUAGES,
    NOTHING_CLIPS,
    SOURCE_LANGUAGE,
    SPOKEN_INPUTS,
    TALK_SOURCES,
    TARGET_LANGUAGES,
    TEXT_WEIGHTS,
)
from earvoice.corpus.sound import (
    SAMPLE_RATE_HZ,
    Sound,
    coloured_noise,
    cut_short,
    over_telephone,
    read_sound,
    with_noise,
    worsened,
)
from earvoice.corpus.states import Shard
from earvoice.corpus.synthesizer import SynthesisError
from earvoice.corpus.texts import Pair, Split, captioned
from earvoice.corpus.voice import (
    Voice,
    draw_foreign_pico,
    draw_foreign_voice,
    draw_pico,
    draw_training_voice,
    draw_unseen_voice,
)

Sounding = Iterator[tuple[Clip, Sound]]
Recorded = Sequence[tuple[Clip, Path]]
Saying = Callable[[Sequence[Pair], random.Random], Sound]
Drawing = Callable[[str, random.Random], "Voice | None"]
"""Draws a voice for a language; None if there is none."""
DrawingEnglish = Callable[[random.Random], Voice]
Item = TypeVar("Item")

SHARD_CLIPS = 250
BRANCH = "branch-"
"""Prefix of the keys and shards of clips that only the CTC branch trains on."""
BABBLING_CLIPS = 60
LEAST_HELD_OUT_WORDS = 4
MILDER = {"pace_share": 0.2, "noise_share": 0.25, "babble_share": 0.08, "telephone_share": 0.2}
"""Milder degradation, for synthesised speech."""
SNR_DB = 10.0
LONG_NOTHING_PLACES = (4, 5, 4, 5, 4, 2, 5, 4, 5, 4, 5, 3)
"""Indices into `NOTHING_KINDS`: the kinds of the long clips, in turn."""
LONG_NOTHING_S = (8.0, 20.0)
FOREIGN_TALK_S, SHORT_TALK_S, SHORT_TALK_SHARE = (1.0, 14.0), (0.8, 4.0), 0.4
CHAT_SHARE, OTHER_LANGUAGE_SHARE = 0.5, 0.25
ALIKE_SHARE, LEAST_ALIKE_LETTERS = 0.5, 5
MOST_WORDS_OF_FEW = 3
ROUND_FEW_S = (0.35, 0.6)
"""Longest silence before and after a clip of few words."""
NOTHING_DEV_EVERY = 11
MOST_DRAWS = 200
"""Most pieces drawn for one long clip; each lasts at least 0.3 s."""


def plan_shards(speech: Path, pairs: Sequence[Pair], seed: int) -> list[Shard]:
    """The shards that `earvoice.corpus.states` computes."""
    people = without_held_out_texts(read_people(speech))
    random.Random(seed).shuffle(people)
    train = [(clip, path) for clip, path in people if clip.split == "train"]
    dev = [(clip, path) for clip, path in people if clip.split == "dev"]
    with_words = [(clip, path) for clip, path in dev if clip.transcript]
    voices = [read_sound(path) for _, path in train[:BABBLING_CLIPS]]
    spoken = plan_spoken(pairs, seed)

    def speaking(name: str, say_them: Saying) -> Callable[[Sequence[Sequence[Pair]]], Sounding]:
        return partial(_spoken, name, say_them, voices=voices, seed=seed)

    foreign, few = foreign_talk(pairs), few_words(pairs)

    def talking(name: str, draw: Drawing) -> Callable[[Sequence[int]], Sounding]:
        return partial(_foreign_talk, name, draw, voices, foreign, seed)

    def answering(name: str, draw: DrawingEnglish) -> Callable[[Sequence[int]], Sounding]:
        return partial(_answers, name, draw, voices, few, seed)

    shards = [
        *_shards("real", train, _real),
        *_shards("worse", train, partial(_worse, voices=voices, seed=seed)),
        *_shards("cut", train, partial(_cut, seed=seed)),
        *_shards("spoken", spoken[:SPOKEN_INPUTS], speaking("spoken", say_input)),
        *_shards("nothing", range(NOTHING_CLIPS), partial(_nothing, voices, pairs, seed)),
        *_shards("nothing-long", range(LONG_NOTHING_CLIPS), partial(_long, voices, pairs, seed)),
        *_shards("nothing-talk", range(FOREIGN_TALK_CLIPS), talking("nothing-talk", _espeak)),
        *_shards(f"{BRANCH}talk", range(BRANCH_TALK_CLIPS), talking(f"{BRANCH}talk", _espeak)),
        *_shards(
            f"{BRANCH}backwards",
            train[:BRANCH_BACKWARDS_CLIPS],
            partial(_backwards, voices=voices, seed=seed),
        ),
        *_shards(
            f"{BRANCH}short",
            range(BRANCH_SHORT_CLIPS),
            answering(f"{BRANCH}short", draw_training_voice),
        ),
        *_shards("dev", dev, _real),
        *_shards("dev-telephone", with_words[::3], _on_telephone),
        *_shards("dev-noise", with_words[1::3], _in_noise),
    ]
    if is_installed():
        name, said, short = (f"{BRANCH}pico{kind}" for kind in ("", "-spoken", "-short"))
        shards += _shards(name, range(BRANCH_PICO_CLIPS), talking(name, draw_foreign_pico))
        shards += _shards(said, spoken[-BRANCH_PICO_INPUTS:], speaking(said, _by_pico))
        shards += _shards(short, range(BRANCH_PICO_SHORT_CLIPS), answering(short, draw_pico))
    for source, count in HELD_OUT_SPOKEN.items():
        chosen = [
            pair
            for pair in pairs
            if (pair.source, pair.split) == (source, "dev")
            and len(pair.english.split()) >= LEAST_HELD_OUT_WORDS
        ]
        shards += _shards(f"dev-spoken-{source}", chosen[:count], partial(_unseen, seed=seed))
    return shards


def first_shards(shards: Sequence[Shard], share: float) -> list[Shard]:
    """Choose this share of each kind's shards, in (0, 1]: the first ones, at least one of each."""
    chosen: list[Shard] = []
    for _, of_kind in groupby(shards, lambda shard: shard[0].rpartition("-")[0]):
        own = list(of_kind)
        chosen += own[: math.ceil(share * len(own))]
    return chosen


def _shards(
    name: str, items: Sequence[Item], make: Callable[[Sequence[Item]], Sounding]
) -> Iterator[Shard]:
    for number, begin in enumerate(range(0, len(items), SHARD_CLIPS)):
        yield f"{name}-{number:03d}", partial(make, items[begin : begin + SHARD_CLIPS])


def _generator(*names: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


def _real(part: Recorded) -> Sounding:
    for clip, path in part:
        yield clip, read_sound(path)


def _worse(part: Recorded, *, voices: list[Sound], seed: int) -> Sounding:
    for clip, path in part:
        sound = worsened(read_sound(path), voices, _generator(seed, clip.key))
        yield clip.worsened(), sound


def _cut(part: Recorded, *, seed: int) -> Sounding:
    for clip, path in part:
        yield clip.cut(), cut_short(read_sound(path), _generator(seed, clip.key, "cut"))


def _backwards(part: Recorded, *, voices: list[Sound], seed: int) -> Sounding:
    """A stretch of each recording from its end to its beginning: sounds of speech without words."""
    for number, (recorded, path) in enumerate(part):
        clip = _nothing_clip(f"{BRANCH}backwards-{recorded.key}", number, "backwards")
        generator, sound = _generator(seed, clip.key), read_sound(path)[::-1]
        count = int(generator.uniform(*FOREIGN_TALK_S) * SAMPLE_RATE_HZ)
        first = int(generator.integers(max(1, len(sound) - count)))
        stretch = np.ascontiguousarray(sound[first : first + count])
        yield clip, worsened(stretch, voices, generator, **MILDER)


def _on_telephone(part: Recorded) -> Sounding:
    for clip, path in part:
        changed = replace(clip, key=f"{clip.key}/telephone", condition="telephone")
        yield changed, over_telephone(read_sound(path))


def _in_noise(part: Recorded) -> Sounding:
    for clip, path in part:
        sound = read_sound(path)
        noise = coloured_noise(len(sound), _generator("noise", clip.key))
        changed = replace(clip, key=f"{clip.key}/noise", condition=f"noise {SNR_DB:.0f} dB")
        yield changed, with_noise(sound, noise, SNR_DB)


def _spoken(
    name: str,
    say_them: Saying,
    part: Sequence[Sequence[Pair]],
    *,
    voices: list[Sound],
    seed: int,
) -> Sounding:
    for sentences in part:
        english = " ".join(pair.english for pair in sentences)
        texts = {
            tag: " ".join(pair.translations[tag] for pair in sentences)
            for tag in sentences[0].translations
        }
        key = f"{name}-{zlib.crc32(english.encode()):08x}"
        texts[SOURCE_LANGUAGE] = " ".join(captioned(pair.english) for pair in sentences)
        clip = Clip(key, sentences[0].source, "train", condition="synthesised", texts=texts)
        generator = random.Random(f"{seed}/{english}")
        yield from _synthesised(clip, partial(say_them, sentences, generator), voices, seed)


def _synthesised(clip: Clip, make: Callable[[], Sound], voices: list[Sound], seed: int) -> Sounding:
    """The clip, degraded as it may arrive; nothing if synthesis failed."""
    try:
        sound = make()
    except SynthesisError as error:
        sys.stderr.write(f"left out: {error}\n")
        return
    yield clip, worsened(sound, voices, _generator(seed, clip.key), **MILDER)


def _by_pico(sentences: Sequence[Pair], generator: random.Random) -> Sound:
    return say(draw_pico(generator), " ".join(pair.english for pair in sentences))


def _unseen(part: Sequence[Pair], *, seed: int) -> Sounding:
    """Sentences by held-out voices of an engine that training does use."""
    for index, pair in enumerate(part):
        voice = draw_unseen_voice(random.Random(f"{seed}/{pair.english}"))
        key = f"{pair.split}-{pair.source}-{index}"
        texts = {SOURCE_LANGUAGE: captioned(pair.english), **pair.translations}
        clip = Clip(key, pair.source, pair.split, condition="unseen voice", texts=texts)
        yield clip, say(voice, pair.english)


def _nothing(
    voices: list[Sound], pairs: Sequence[Pair], seed: int, numbers: Sequence[int]
) -> Sounding:
    translations = _foreign_texts(pairs)
    for number in numbers:
        kind, sound = nothing(number, voices, translations, seed)
        yield _nothing_clip(f"nothing-{number}", number, kind), sound


def _long(
    voices: list[Sound], pairs: Sequence[Pair], seed: int, numbers: Sequence[int]
) -> Sounding:
    """Long clips, each joined from pieces of one kind."""
    translations = _foreign_texts(pairs)
    for number in numbers:
        generator = _generator(seed, "long", number)
        place = LONG_NOTHING_PLACES[number % len(LONG_NOTHING_PLACES)]
        indices = (
            place + len(NOTHING_KINDS) * int(generator.integers(NOTHING_CLIPS, 1_000_000))
            for _ in range(MOST_DRAWS)
        )
        pieces = (partial(nothing, index, voices, translations, seed) for index in indices)
        kind, sound = one_after_another(pieces, generator.uniform(*LONG_NOTHING_S))
        yield _nothing_clip(f"nothing-long-{number}", number, kind), sound


@dataclass(frozen=True)
class ForeignTalk:
    """Texts in the target languages, by tag."""

    chat: dict[str, list[str]]
    """Conversational texts."""
    all: dict[str, list[str]]
    alike: dict[str, list[int]]
    """Indices of `chat` texts whose first word also begins English chat."""


def foreign_talk(pairs: Sequence[Pair]) -> ForeignTalk:
    """Collect it from the train texts."""
    said, chat = _said_and_chat(pairs)
    english = {_first_word(pair.english) for pair in chat}
    talk = _by_language(chat)
    alike = {
        tag: [n for n, text in enumerate(own) if _sounds_like_one_of(_first_word(text), english)]
        for tag, own in talk.items()
    }
    return ForeignTalk(talk, _by_language(said), alike)


def _said_and_chat(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The train texts that are used for training, and the conversational ones among them."""
    said = [pair for pair in pairs if pair.split == "train" and TEXT_WEIGHTS.get(pair.source, 1)]
    return said, [pair for pair in said if pair.source in TALK_SOURCES]


def _foreign_talk(
    name: str,
    draw: Drawing,
    voices: list[Sound],
    talk: ForeignTalk,
    seed: int,
    numbers: Sequence[int],
) -> Sounding:
    """Sentences in a target language, joined and degraded as they may arrive.

    Half is conversation, and half of that begins with a word that English also begins with.
    """

    def spoken(tag: str, voice: Voice, text: str) -> tuple[str, Sound]:
        return f"language {tag}", speak(voice, text)

    tags = [tag for tag in TARGET_LANGUAGES if talk.chat[tag]]
    for number in numbers if tags else ():
        generator = random.Random(f"{seed}/{name}/{number}")
        tag = generator.choice(tags)
        voice = draw(tag, generator)
        if voice is None:
            continue
        is_chat = generator.random() < CHAT_SHARE
        own = (talk.chat if is_chat else talk.all)[tag]
        first = generator.randrange(len(own))
        if is_chat and talk.alike[tag] and generator.random() < ALIKE_SHARE:
            first = generator.choice(talk.alike[tag])
        following = (own[(first + n) % len(own)] for n in range(MOST_DRAWS))
        pieces = (partial(spoken, tag, voice, text) for text in following)
        is_short = generator.random() < SHORT_TALK_SHARE
        seconds = generator.uniform(*(SHORT_TALK_S if is_short else FOREIGN_TALK_S))
        kind, sound = one_after_another(pieces, seconds)
        clip = _nothing_clip(f"{name}-{number}", number, kind)
        yield clip, worsened(sound, voices, _generator(seed, clip.key), **MILDER)


def few_words(pairs: Sequence[Pair]) -> list[list[str]]:
    """English phrases of one to three words, in pools that are drawn from equally often.

    Two pools are from conversations, one from other texts, one has single words of conversations.
    """
    said, chat = _said_and_chat(pairs)
    other = _phrases(pair.english for pair in said if pair.source not in TALK_SOURCES)
    texts = [pair.english for pair in chat]
    talk = _phrases(texts)
    words = {word.capitalize() for text in texts for word in re.findall(r"[A-Za-z']{2,}", text)}
    pools = [talk, talk, other, [f"{word}." for word in sorted(words)]]
    return [pool for pool in pools if pool]


def _phrases(texts: Iterable[str]) -> list[str]:
    parts = (part.strip() for text in texts for part in re.findall(r"[^.!?,;:]+[.!?,;:]?", text))
    return [
        part
        for part in parts
        if len(part.split()) <= MOST_WORDS_OF_FEW and re.search(r"[A-Za-z]{2}", part)
    ]


def _answers(
    name: str,
    draw: DrawingEnglish,
    voices: list[Sound],
    few: list[list[str]],
    seed: int,
    numbers: Sequence[int],
) -> Sounding:
    """Short answers between two stretches of silence."""

    def said(text: str, generator: random.Random) -> Sound:
        sound = say(draw(generator), text)
        around = [int(generator.uniform(0.0, s) * SAMPLE_RATE_HZ) for s in ROUND_FEW_S]
        return np.pad(sound, around)

    for number in numbers if few else ():
        generator = random.Random(f"{seed}/{name}/{number}")
        text = generator.choice(generator.choice(few))
        texts = {SOURCE_LANGUAGE: captioned(text)}
        clip = Clip(f"{name}-{number}", "few words", "train", condition="synthesised", texts=texts)
        yield from _synthesised(clip, partial(said, text, generator), voices, seed)


def _espeak(tag: str, generator: random.Random) -> Voice:
    """Draw an espeak-ng voice; a quarter of the time one of another language than the text's."""
    others = sorted({*FOREIGN_LANGUAGES, *MORE_FOREIGN_LANGUAGES}.difference(TARGET_LANGUAGES))
    language = generator.choice(others) if generator.random() < OTHER_LANGUAGE_SHARE else tag
    return draw_foreign_voice(language, generator, is_plain=False)


def _by_language(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    return {
        tag: [pair.translations[tag] for pair in pairs if tag in pair.translations]
        for tag in TARGET_LANGUAGES
    }


def _first_word(text: str) -> str:
    found = re.search(r"[^\W\d_]+", text.lower())
    return found[0] if found else ""


def _sounds_like_one_of(word: str, others: Collection[str]) -> bool:
    """Whether the word is one of the others, or differs from one by a letter ("hallo")."""
    if word in others or len(word) < LEAST_ALIKE_LETTERS:
        return bool(word) and word in others
    return any(
        len(word) == len(other) and sum(a != b for a, b in zip(word, other, strict=True)) == 1
        for other in others
    )


def one_after_another(
    pieces: Iterable[Callable[[], tuple[str, Sound]]], seconds: float
) -> tuple[str, Sound]:
    """Join pieces and cut them at a length; return the last piece's kind, and the sound.

    Raises:
        SynthesisError: the pieces ran out, or none could be synthesised.
    """
    length, sound, fault = int(seconds * SAMPLE_RATE_HZ), np.zeros(0, np.float32), None
    for make in pieces:
        try:
            kind, piece = make()
        except SynthesisError as error:
            sys.stderr.write(f"another is drawn: {error}\n")
            fault = error
            continue
        sound = np.concatenate((sound, piece))
        if len(sound) >= length:
            return kind, sound[:length]
    message = f"{len(sound)} samples were said of {length}"
    raise SynthesisError(message) from fault


def _foreign_texts(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    texts = _by_language([pair for pair in pairs if pair.split == "train"][::50])
    return {tag: of_tag for tag, of_tag in texts.items() if of_tag}


def _nothing_clip(key: str, number: int, kind: str) -> Clip:
    # A number that shares no factor with those of the kinds, which come in turn.
    split: Split = "dev" if number % NOTHING_DEV_EVERY == 0 else "train"
    texts = dict.fromkeys((SOURCE_LANGUAGE, *TARGET_LANGUAGES), "")
    return Clip(key, "nothing", split, condition=kind, texts=texts)
