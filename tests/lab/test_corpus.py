"""What training hears and reads: held-out sentences stay out, languages are names of files."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earvoice.corpus import build, clips, held_out, sound
from earvoice.corpus.clips import (
    NOTHING_KINDS,
    Clip,
    nothing,
    plan_spoken,
    say,
    without_held_out_texts,
)
from earvoice.corpus.espeak_library import phonemes, speak_with_espeak_timed
from earvoice.corpus.held_out import (
    TestInput,
    without_published,
    write_joined,
    write_languages,
    write_nothing,
    write_sentences,
    write_set,
)
from earvoice.corpus.pico import speak_with_pico
from earvoice.corpus.spoken import said_words
from earvoice.corpus.synthesizer import MissingEngineError, SynthesisError
from earvoice.corpus.texts import Pair, Split, captioned, comparison_key, fits, read_pairs
from earvoice.corpus.voice import Voice, draw_pico, draw_training_voice, draw_unseen_voice
from earvoice.corpus.word_timing import TimedSpeech

pytestmark = pytest.mark.torch


def write(folder: Path, name: str, *rows: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = "".join("\t".join(row) + "\n" for row in rows)
    (folder / name).write_text(content, encoding="utf-8")


def test_a_language_is_a_name_of_a_file(tmp_path: Path) -> None:
    """Dutch is read beside German without a word about either."""
    write(tmp_path / "more", "news.en-de.tsv", ("Good morning.", "Guten Morgen."))
    write(tmp_path / "more", "news.en-nl.tsv", ("Good morning!", "Goedemorgen."), ("Bye.", "Dag."))
    pairs = {pair.english: pair.translations for pair in read_pairs(tmp_path)}
    assert pairs["Good morning."] == {"de": "Guten Morgen.", "nl": "Goedemorgen."}
    assert pairs["Bye."] == {"nl": "Dag."}


def test_what_is_held_out_anywhere_is_trained_on_nowhere(tmp_path: Path) -> None:
    """A dev sentence that another corpus has too, in other case and punctuation."""
    dialogue = "customer-chat.{}.conversation-role-en-de.tsv"
    write(tmp_path, dialogue.format("dev"), ("c1", "agent", "How are you?", "Wie geht es?"))
    write(tmp_path, dialogue.format("train"), ("c2", "agent", "Fine, thanks.", "Gut, danke."))
    write(tmp_path, "tatoeba.train.en-de.tsv", ("how are you", "wie geht's dir"))
    splits = {comparison_key(pair.english): pair.split for pair in read_pairs(tmp_path)}
    assert splits == {"how are you": "dev", "fine thanks": "train"}


def test_the_test_of_a_source_is_the_same_in_each_language(tmp_path: Path) -> None:
    """It is drawn by the English sentence."""
    rows = [(f"Sentence number {n} of many.", f"Satz {n} von vielen.") for n in range(300)]
    write(tmp_path / "more", "cocoa_mt.en-de.tsv", *rows)
    write(tmp_path / "more", "cocoa_mt.en-es.tsv", *reversed(rows))
    pairs = [pair for pair in read_pairs(tmp_path) if pair.split == "test"]
    assert len(pairs) == 100
    assert all(set(pair.translations) == {"de", "es"} for pair in pairs)


def test_a_file_of_another_name_or_shape_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "things.tsv", ("a", "b"))
    with pytest.raises(ValueError, match=r"things\.tsv is not named"):
        read_pairs(tmp_path)
    write(tmp_path, "things.tsv")
    (tmp_path / "things.tsv").unlink()
    write(tmp_path, "things.en-de.tsv", ("a", "b", "c"))
    with pytest.raises(ValueError, match=r"things\.en-de\.tsv:1: 3 columns; allowed: 2"):
        read_pairs(tmp_path)


@pytest.mark.parametrize(
    ("english", "translation", "kept"),
    [
        ("Good morning.", "Guten Morgen.", True),
        ("Run pip install {name}.", "Starte pip install {name}.", False),
        ("...", "...", False),
        (
            "Yes.",
            "Das war eine sehr lange Antwort auf eine ganz kurze Frage, oder etwa nicht?",
            False,
        ),
    ],
)
def test_pairs_that_nobody_would_say_are_left_out(
    english: str, translation: str, kept: bool
) -> None:
    assert fits(english, translation) is kept


def test_unseen_voices_are_none_of_training() -> None:
    generator = random.Random(1)
    trained = [draw_training_voice(generator) for _ in range(3_000)]
    variants = {voice.name.partition("+")[2] for voice in trained if voice.engine == "espeak-ng"}
    assert {voice.engine for voice in trained} == {"espeak-ng", "flite", "hibari"}
    for _ in range(200):
        assert draw_unseen_voice(generator).name.partition("+")[2] not in variants
        assert draw_pico(generator).engine == "pico"


def test_an_engine_of_pico_that_has_failed_is_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with whatever follows a sentence that was too long for it."""
    loaded: list[str] = []

    @cache
    def engine(name: str) -> tuple[None, None]:
        loaded.append(name)
        return None, None

    class Library:
        pico_putTextUtf8 = staticmethod(lambda *_: -200)  # noqa: N815 - Pico's name

    monkeypatch.setattr("earvoice.corpus.pico._engine", engine)
    monkeypatch.setattr("earvoice.corpus.pico._library", Library)
    for _ in range(2):
        with pytest.raises(SynthesisError, match="status -200"):
            speak_with_pico(Voice("pico", "de-DE"), "Hallo")
    assert loaded == ["de-DE", "de-DE"]


def test_joined_sentences_are_of_one_conversation() -> None:
    pairs = [
        Pair("customer-chat", f"Sentence {n} is here.", "train", {"de": "x"}, f"c{n // 4}", "agent")
        for n in range(400)
    ]
    inputs = plan_spoken(pairs, 1)
    assert sorted(pair.english for row in inputs for pair in row) == sorted(
        p.english for p in pairs
    )
    assert any(len(row) > 1 for row in inputs)
    assert all(len({pair.group for pair in row}) == 1 for row in inputs)
    assert inputs == plan_spoken(pairs, 1)


def test_a_telephone_line_keeps_the_middle_of_the_band() -> None:
    """1 kHz passes; 100 Hz and 5 kHz do not."""
    time_s = np.arange(16_000) / 16_000
    for frequency_hz, passes in ((1_000, True), (100, False), (5_000, False)):
        tone = (0.25 * np.sin(2 * np.pi * frequency_hz * time_s)).astype(np.float32)
        heard = sound.over_telephone(tone)
        assert len(heard) == len(tone)
        share = np.abs(heard).mean() / np.abs(tone).mean()
        assert (share > 0.9) if passes else (share < 0.1)


def test_noise_is_as_loud_as_was_asked_for() -> None:
    generator = np.random.default_rng(1)
    voice = generator.standard_normal(32_000).astype(np.float32) * 0.1
    noise = sound.coloured_noise(16_000, generator)
    mixed = sound.with_noise(voice, noise, 10.0)
    ratio = sound.loudness(voice) / sound.loudness(mixed - voice)
    assert 20 * np.log10(ratio) == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("index", range(4))
def test_nothing_is_heard_but_never_said(index: int) -> None:
    """Silence, noise, music and babble; the same again for the same number."""
    voices = [np.sin(np.arange(8_000, dtype=np.float32))]
    kind, made = nothing(index, voices, {"de": ["Guten Tag."]}, 1)
    assert kind == ("silence", "noise", "music", "babble")[index]
    assert made.dtype == np.float32
    assert np.isfinite(made).all()
    assert (nothing(index, voices, {"de": ["Guten Tag."]}, 1)[1] == made).all()


@pytest.mark.parametrize(("number", "kind"), [(5, "music"), (11, "babble")])
def test_what_says_nothing_may_go_on(number: int, kind: str) -> None:
    """As long as an utterance that a stream cuts; nothing is to be written of it."""
    voices = [np.sin(np.arange(8_000, dtype=np.float32))]
    ((clip, made),) = build._long(voices, [], 1, [number])
    assert (clip.condition, set(clip.texts.values())) == (kind, {""})
    assert 8 * 16_000 <= len(made) <= 20 * 16_000
    ((_, again),) = build._long(voices, [], 1, [number])
    assert (again == made).all()


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_talk_in_another_language_says_nothing_however_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of train alone, by one voice; what cannot be said, and what nobody says, is left out."""
    said: list[tuple[str, str]] = []

    def speak(voice: Voice, text: str) -> TimedSpeech:
        said.append((voice.name[:2], text))
        return speak_with_espeak_timed(voice, text)

    monkeypatch.setattr(clips, "speak_with_espeak_timed", speak)
    texts = {"de": "Okay, ich schaue nach.", "es": "Hola, vamos a ver."}
    pairs = [
        Pair("customer-chat", "Okay, I will look.", "train", texts),
        Pair("customer-chat", "-", "train", {"de": "-"}),
        Pair("customer-chat", "Hello.", "test", {"de": "Hallo.", "es": "Hola."}),
        Pair("gnome_help", "Close it.", "train", {"de": "Beenden.", "es": "Salir."}),
    ]
    talk = build.foreign_talk(pairs)
    for number in range(1, 5):
        said.clear()
        ((clip, made),) = build._foreign_talk("talk", build._espeak, [], talk, 1, [number])
        assert len({language for language, _ in said}) == 1
        own = texts[clip.condition.removeprefix("language ")]
        assert {text for _, text in said} - {"-"} == {own}
        assert set(clip.texts.values()) == {""}
        assert 0.7 * 16_000 <= len(made) <= 18 * 16_000
        before = [*said]
        said.clear()
        assert len([*build._foreign_talk("talk", build._espeak, [], talk, 1, [number])]) == 1
        assert said == before


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_a_quarter_of_that_talk_begins_as_english_may(monkeypatch: pytest.MonkeyPatch) -> None:
    firsts: list[str] = []

    def speak(voice: Voice, text: str) -> TimedSpeech:
        firsts.append(text)
        return speak_with_espeak_timed(voice, "eins, zwei, drei, vier, " * 10)

    monkeypatch.setattr(clips, "speak_with_espeak_timed", speak)
    texts = ["Hallo, wer spricht da?", *(f"Das kostet {n} Euro." for n in range(50))]
    pairs = [Pair("customer-chat", "Hello there.", "train", {"de": text}) for text in texts]
    talk = build.foreign_talk(pairs)
    assert len([*build._foreign_talk("talk", build._espeak, [], talk, 1, range(80))]) == 80
    assert 10 <= firsts.count(texts[0]) <= 30


@pytest.mark.parametrize(
    ("word", "does"),
    [("okay", True), ("hallo", True), ("wir", False), ("hell", False), ("helloo", False)],
)
def test_a_word_sounds_like_english_if_all_but_a_letter_is_the_same(word: str, does: bool) -> None:
    assert build._sounds_like_one_of(word, {"hello", "okay", "sir", ""}) is does


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
@pytest.mark.parametrize("has_pico", [True, False])
def test_minutes_of_other_languages_are_of_what_is_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pico: bool
) -> None:
    said: list[tuple[str, str]] = []

    def speak(voice: Voice, text: str) -> sound.Sound:
        said.append((voice.name[:2], text))
        if text == "...":
            raise SynthesisError("nothing to say")
        return np.full(10 * 16_000, 0.1, np.float32)

    monkeypatch.setattr("earvoice.corpus.held_out.speak", speak)
    monkeypatch.setattr("earvoice.corpus.held_out.is_installed", lambda: has_pico)
    pairs = [
        Pair("chat", "One.", "test", {"de": "Eins."}),
        Pair("chat", "Two.", "test", {"es": "Dos."}),
        Pair("chat", "...", "test", {"de": "..."}),
        Pair("chat", "Three.", "train", {"de": "Drei.", "es": "Tres."}),
    ]
    write_languages(pairs, tmp_path, 1, "test")
    engines = ("espeak-ng", "pico") if has_pico else ("espeak-ng",)
    wanted = [f"{tag} by {engine}" for tag in ("de", "es") for engine in engines for _ in range(2)]
    assert (tmp_path / "source.txt").read_text().splitlines() == wanted
    assert (tmp_path / "refs.en.txt").read_text() == "\n" * len(wanted)
    for path in (tmp_path / "wavs.txt").read_text().splitlines():
        assert soundfile.info(path).frames == 60 * 16_000
    assert {*said} == {("de", "Eins."), ("de", "..."), ("es", "Dos.")}


def recordings(speech: Path, *splits: Split) -> Path:
    """A folder of recordings: a second of a tone for each speaker, of whom there is one a split."""
    for folder in ("people", "ljspeech", "librispeech-unlabelled"):
        (speech / folder).mkdir(parents=True)
    (speech / "ljspeech" / "transcripts.tsv").write_text("utt\ttranscript_raw\n")
    rows = ["file\tsource\tspeaker\tsplit\tcondition\ttranscript"]
    for number, split in enumerate(splits, start=1):
        rows.append(f"{split}.wav\ts\t{split}\t{split}\tread\tyes")
        tone = 0.1 * np.sin(np.arange(16_000) * 0.1 * number)
        soundfile.write(speech / "people" / f"{split}.wav", tone, 16_000)
    (speech / "people" / "people.tsv").write_text("\n".join(rows) + "\n")
    return speech


def test_a_share_of_the_corpus_has_shards_of_every_kind_which_a_greater_share_continues(
    tmp_path: Path,
) -> None:
    speech = recordings(tmp_path / "speech", "train", "dev")

    shards = build.plan_shards(speech, [], 1)

    def names(share: float) -> list[str]:
        return [name for name, _ in build.first_shards(shards, share)]

    everything, half, least = names(1.0), names(0.5), names(0.001)
    assert {*least} < {*half} < {*everything}
    assert {name[:-4] for name in least} == {name[:-4] for name in everything}
    assert {name[-3:] for name in least} == {"000"}


def test_nothing_is_said_otherwise_on_dev_than_in_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confidence is fitted on one and measured on the other; dev speaks sentences of dev alone."""
    said: list[str] = []

    def speak(_voice: Voice, text: str) -> sound.Sound:
        said.append(text)
        return np.full(16_000 + 100 * len(said), 0.1, np.float32)

    monkeypatch.setattr(clips, "speak", speak)
    speech = recordings(tmp_path / "speech", "dev", "test")
    pairs = [Pair("s", split, split, {"de": f"{split}."}) for split in ("train", "dev", "test")]
    sets = {}
    for split in ("dev", "test"):
        said.clear()
        write_nothing(speech, pairs, tmp_path / split, split)
        assert {*said} == ({"dev."} if split == "dev" else {"train.", "dev.", "test."})
        wavs = (tmp_path / split / "wavs.txt").read_text().splitlines()
        sets[split] = [Path(wav).read_bytes() for wav in wavs]
    assert len(sets["dev"]) == len(NOTHING_KINDS) + 1
    assert not {*sets["dev"][:4]} & {*sets["test"][:4]}
    write_nothing(speech, [], tmp_path / "without", "dev")
    kinds = (tmp_path / "without" / "source.txt").read_text().splitlines()
    assert kinds == ["silence", "noise", "music", "babble", "backwards"]


def test_a_language_without_held_out_sentences_has_no_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another has as many inputs as were asked for, and references of all languages."""
    monkeypatch.setattr(held_out, "say", lambda *_: np.zeros(1_600, np.float32))
    english = "This is a sentence of seven words."
    write_sentences([Pair("s", english, "dev", {"es": "x"})], tmp_path, 1, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["sentences-es"]
    folder = tmp_path / "sentences-es"
    assert (folder / "source.txt").read_text().splitlines() == [english] * 3
    silence = np.zeros(1_600, np.float32)
    inputs = [TestInput(silence, "a", {"en": "a"}), TestInput(silence, "b", {"en": "b", "de": "c"})]
    write_set(folder, inputs)
    assert (folder / "refs.de.txt").read_text() == "\nc\n"


def test_few_words_are_what_ends_at_a_stop_and_words_of_talk() -> None:
    pairs = [
        Pair("customer-chat", "Okay, I will have a look. One moment!", "train", {}),
        Pair("customer-chat", "Never mind.", "test", {}),
        Pair("tatoeba", "Good morning. - 7", "train", {}),
        Pair("gnome_help", "Close it.", "train", {}),
    ]
    chat, again, other, words = build.few_words(pairs)
    assert chat == again == ["Okay,", "One moment!"]
    assert other == ["Good morning."]
    assert words == [f"{w}." for w in ("Have", "Look", "Moment", "Okay", "One", "Will")]
    assert build.few_words([]) == []


def test_few_words_are_said_between_silence_and_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def say(_voice: Voice, text: str) -> sound.Sound:
        if text == "-.":
            raise SynthesisError("nothing to say")
        return np.full(8_000, 0.1, np.float32)

    monkeypatch.setattr(build, "say", say)
    few = [["yes.", "-."]]
    made = [*build._answers("short", draw_pico, [], few, 1, range(20))]
    assert 5 <= len(made) < 20
    assert {clip.texts["en"] for clip, _ in made} == {"Yes."}
    assert {clip.said for clip, _ in made} == {"yes"}
    assert len({len(padded) for _, padded in made}) > 5
    assert not [*build._answers("short", draw_pico, [], [], 1, [1])]


def test_without_an_engine_no_corpus_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would lack all that the engine says, and be complete for good."""

    def say(_voice: Voice, _text: str) -> sound.Sound:
        raise MissingEngineError("flite's library cannot be loaded")

    monkeypatch.setattr(build, "say", say)
    with pytest.raises(MissingEngineError, match="flite"):
        [*build._answers("short", draw_pico, [], [["yes."]], 1, range(2))]


def test_a_phrase_begins_after_a_pause_in_speech() -> None:
    generator = np.random.default_rng(1)
    silence, speech = np.zeros(16_000, np.float32), np.full(16_000, 0.1, np.float32)
    begin, part = sound.phrase(np.concatenate((silence, speech, silence, speech)), generator, 640)
    assert begin == (48_000 - 1_920) // 640 * 640
    assert np.count_nonzero(part[:1_920]) <= 640
    assert 0.8 * 16_000 <= len(part) <= 3 * 16_000
    for whole in (np.concatenate((silence, speech, speech)), speech, silence):
        begin, part = sound.phrase(whole, generator, 640)
        assert begin == 0
        assert np.array_equal(part, whole[: len(part)])


def test_where_nobody_talks_in_another_language_no_talk_is_made() -> None:
    assert not [*build._foreign_talk("talk", build._espeak, [], build.foreign_talk([]), 1, [1, 2])]


def test_what_held_out_speakers_read_is_not_taught() -> None:
    """Though another speaker reads it; what nobody has written down stays."""

    def clip(key: str, split: Split, transcript: str) -> tuple[Clip, Path]:
        return Clip(key, "people", split, transcript=transcript), Path(key)

    given = [
        clip("a", "train", "It was good for me."),
        clip("b", "train", "Another sentence."),
        clip("c", "train", ""),
        clip("d", "dev", ""),
        clip("e", "test", "it was good for me"),
    ]
    assert [clip.key for clip, _ in without_held_out_texts(given)] == ["b", "c", "d", "e"]


def test_nothing_is_chosen_on_what_is_published() -> None:
    """Chat and conversations of the dev split are measured, not the sentences beside them."""
    pairs = [
        Pair(source, f"{source} number {n} is what somebody said here", "dev", {"de": f"x {n}"})
        for source in ("customer-chat", "tatoeba")
        for n in range(40)
    ]
    kept = without_published(pairs, seed=1, count=3)
    lost = [pair for pair in pairs if pair not in kept]
    assert {pair.english for pair in pairs[:3]} <= {pair.english for pair in lost}
    assert 3 < len(lost) < len(pairs)


def test_other_languages_say_what_is_taught_alone() -> None:
    pairs = [
        Pair("chat", f"{split} {n}", split, {"de": f"{split} {n}"})
        for n in range(60)
        for split in ("train", "dev", "test")
    ]
    assert build._foreign_texts(pairs) == {"de": ["train 0", "train 50"]}


def test_what_cannot_be_said_long_enough_is_told() -> None:
    with pytest.raises(SynthesisError, match="8000 samples were said of 16000"):
        build.one_after_another([lambda: ("noise", np.zeros(8_000, np.float32))], 1.0)


def test_lone_signs_are_not_words() -> None:
    assert said_words("yes - the 'best' one !") == ["yes", "the", "'best'", "one"]


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_a_test_set_says_when_each_word_was_said(tmp_path: Path) -> None:
    pairs = [
        Pair("chat", f"I would like to order number {n} and two more, please.", "dev",
             {"de": "Ich möchte bestellen."}, "c", "customer")
        for n in range(4)
    ]  # fmt: skip
    write_joined(pairs, tmp_path / "joined", seed=1, count=3)
    wavs = (tmp_path / "joined" / "wavs.txt").read_text().splitlines()
    said = (tmp_path / "joined" / "source.txt").read_text().splitlines()
    words = [json.loads(line) for line in (tmp_path / "joined" / "words.jsonl").open()]
    assert len(wavs) == len(said) == len(words) > 0
    for path, text, timed in zip(wavs, said, words, strict=True):
        assert [word["word"] for word in timed] == text.split()
        assert timed[-1]["end_ms"] <= 1000 * soundfile.info(path).duration


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_words_are_told_by_their_phonemes() -> None:
    words = ["know", "no", "there", "they're", "shark", "sharp"]
    know, no, there, they_re, shark, sharp = phonemes(words)
    assert know == no == ("n", "oU")
    assert there[:1] == they_re[:1] == ("D",)
    assert len(shark) == len(sharp) == 3
    assert shark[:2] == sharp[:2]


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="espeak-ng is not installed")
def test_a_voice_speaks_at_the_level_of_every_other() -> None:
    samples = say(Voice("espeak-ng", "en-us+m3", 1.0, 50.0), "Number 5 is ready.")
    assert samples.dtype == np.float32
    assert np.sqrt(np.square(samples).mean()) == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize(
    ("typed", "caption"),
    [
        ("ok. i will do that. and i'm sure", "Okay. I will do that. And I'm sure."),
        ("Ok, so do i, hi! how are you", "Okay, so do I, hi! How are you?"),
        ("'ok' he said", "'Okay' he said."),
        ("(i see etc. and so on)", "(I see etc. and so on)"),
        ("At 5 p.m. on Monday, i.e. today.", "At 5 p.m. on Monday, i.e. today."),
        ("5 apples", "5 apples."),
        ("when she looked up she beamed", "When she looked up she beamed."),
        ("what a day", "What a day."),
        ("how many toppings does that take", "How many toppings does that take?"),
        ("may passed", "May passed."),
        ("where's my pizza", "Where's my pizza?"),
        ("can't you come", "Can't you come?"),
    ],
)
def test_what_was_typed_in_haste_is_written_as_captions_are(typed: str, caption: str) -> None:
    assert captioned(typed) == caption
    assert captioned(caption) == caption
