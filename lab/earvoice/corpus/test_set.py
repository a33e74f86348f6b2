"""Test sets on disk: sounds, references, and when each word was said."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import soundfile

from earvoice.corpus.selection import Selection, comparison_key, held_out, select, select_texts
from earvoice.corpus.synthesizer import SAMPLE_RATE_HZ, SynthesisError
from earvoice.corpus.telephone_line import send_over_line
from earvoice.corpus.test_input import plan_inputs, said_words, speak_input

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.corpus.sentence import Sentence
    from earvoice.corpus.test_input import TestInput
    from earvoice.corpus.word_timing import TimedSpeech

_SHORTEST_MS = 6_000


def write_test_sets(text: Path, out: Path, seed: int, count: int) -> None:
    """Write ``joined/``, ``telephone/`` (the same over a telephone line) and ``spanish/``.

    In each: ``NUMBER.wav`` (16 kHz, mono), ``wavs.txt`` (their paths), ``source.txt``,
    ``refs.LANGUAGE.txt``, ``words.jsonl`` (each word's start and end) and ``inputs.tsv``
    (domain, kind of voice, voices). Lines belong together.

    Args:
        text: folder of the texts.
        out: where the sets are written.
        seed: of every draw.
        count: most inputs of a set; fewer where the held-out sentences give no more.
    """
    sentences = held_out_sentences(text, seed)
    german = [sentence for sentence in sentences if sentence.german]
    spanish = [sentence for sentence in sentences if sentence.spanish]
    spoken = _speak(plan_inputs(german, seed), count)
    write_set(out / "joined", spoken, "de")
    over_line = [
        (planned, type(speech)(send_over_line(speech.samples), speech.words))
        for planned, speech in spoken
    ]
    write_set(out / "telephone", over_line, "de")
    write_set(out / "spanish", _speak(plan_inputs(spanish, seed), count), "es")


def held_out_sentences(text: Path, seed: int) -> list[Sentence]:
    """Return every sentence that is kept from training, those beyond the dev clips too."""
    selection = Selection(seed=seed)
    rows = select(text, selection)
    trained = [*select_texts(text, selection, rows), *(r for r in rows if r.split == "train")]
    keys = {comparison_key(row.spoken) for row in trained}
    return [row for row in held_out(text, selection) if comparison_key(row.spoken) not in keys]


def write_set(folder: Path, spoken: Sequence[tuple[TestInput, TimedSpeech]], language: str) -> None:
    """Write one test set."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {name: [] for name in _files(language)}
    lines["inputs.tsv"].append("number\tdomain\tkind\tvoices\tduration_ms")
    for number, (planned, speech) in enumerate(spoken, start=1):
        path = folder / f"{number:04d}.wav"
        soundfile.write(path, speech.samples, SAMPLE_RATE_HZ, subtype="PCM_16")
        voices = " ".join(dict.fromkeys(f"{voice.engine}:{voice.name}" for voice in planned.voices))
        row = (number, planned.sentences[0].domain, planned.kind, voices)
        for name, line in (
            ("wavs.txt", str(path)),
            ("source.txt", " ".join(" ".join(said_words(s.spoken)) for s in planned.sentences)),
            (f"refs.{language}.txt", " ".join(s.translation(language) for s in planned.sentences)),
            ("words.jsonl", json.dumps([asdict(word) for word in speech.words])),
            ("inputs.tsv", "\t".join(map(str, (*row, round(speech.duration_ms))))),
        ):
            lines[name].append(line)
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n", encoding="utf-8")


def _files(language: str) -> tuple[str, ...]:
    return "wavs.txt", "source.txt", f"refs.{language}.txt", "words.jsonl", "inputs.tsv"


def _speak(planned_inputs: Sequence[TestInput], count: int) -> list[tuple[TestInput, TimedSpeech]]:
    """Speak what can be spoken with word times; what is left out is named."""
    spoken: list[tuple[TestInput, TimedSpeech]] = []
    for planned in planned_inputs:
        if len(spoken) == count:
            break
        try:
            speech = speak_input(planned)
        except SynthesisError as error:
            sys.stderr.write(f"{planned.sentences[0].key} left out: {error}\n")
            continue
        if speech.duration_ms >= _SHORTEST_MS:
            spoken.append((planned, speech))
    return spoken
