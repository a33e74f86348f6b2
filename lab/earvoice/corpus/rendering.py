"""Speak the whole corpus: which voice says which sentence, in shards over processes."""

from __future__ import annotations

import hashlib
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from earvoice.corpus.clip_store import Clip, ClipStore
from earvoice.corpus.hibari import speak_with_hibari
from earvoice.corpus.synthesizer import (
    SAMPLE_RATE_HZ,
    EngineMissingError,
    SynthesisError,
    speak,
    speak_with_festival,
)
from earvoice.corpus.voice import (
    draw_neural_voice,
    draw_second_voice,
    draw_third_voice,
    draw_training_voice,
    draw_unseen_engine,
    draw_unseen_neural_voice,
    draw_unseen_speaker,
    draw_unseen_voice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from earvoice.corpus.sentence import Sentence
    from earvoice.corpus.voice import Voice

    Speaker = Callable[[Voice, str], NDArray[np.int16]]

_SHARD_CLIPS = 200
NEURAL_SHARD_CLIPS = 40
"""A neural synthesiser needs two seconds for a clip."""
_LETTERS_PER_HOUR = 14 * 3600
_MAXIMUM_SAMPLES = 20 * SAMPLE_RATE_HZ


@dataclass(frozen=True)
class Request:
    """One sentence to be spoken by one voice."""

    key: str
    sentence: str
    voice: Voice
    text: str


def plan_requests(sentences: Sequence[Sentence], seed: int) -> list[Request]:
    """Assign voices.

    In train, one group and speaker keep one voice; the draw depends on the seed and their
    names alone, so that a longer corpus leaves the voices of the rest as they are. Every dev
    sentence is spoken three times: by a training voice (``/seen``), by an unseen voice of a
    seen engine (``/unseen``) and by a human speaker's voice that training never uses
    (``/speaker``).
    """
    requests = []
    for sentence in sentences:
        if sentence.split == "train":
            generator = random.Random(f"{seed}/{sentence.group}/{sentence.speaker}")
            voice = draw_training_voice(generator)
            requests.append(Request(sentence.key, sentence.key, voice, sentence.spoken))
            continue
        generator = random.Random(f"{seed}/{sentence.key}")
        voices = {
            "seen": draw_training_voice(generator),
            "unseen": draw_unseen_voice(generator),
            "speaker": draw_unseen_speaker(generator),
        }
        requests += [
            Request(f"{sentence.key}/{name}", sentence.key, voice, sentence.spoken)
            for name, voice in voices.items()
        ]
    return requests


def plan_second_requests(sentences: Sequence[Sentence], seed: int) -> list[Request]:
    """Let every train sentence be said once more by another voice of training (``/again``)."""
    train = (sentence for sentence in sentences if sentence.split == "train")
    return _by_speakers(train, seed, "again", draw_second_voice)


def plan_engine_requests(sentences: Sequence[Sentence], seed: int) -> list[Request]:
    """Let an engine that training never hears say customer chat of dev (``/engine``)."""
    return _held_out_chat(sentences, seed, "engine", draw_unseen_engine)


def plan_neural_requests(sentences: Sequence[Sentence], seed: int, hours: float) -> list[Request]:
    """Choose what neural voices say once more, and which says what.

    Of dev every sentence of customer chat, by a voice that training never uses (``/neural``); then
    conversations of train in a drawn order, until about so many hours are full.
    """
    requests = _held_out_chat(sentences, seed, "neural", draw_unseen_neural_voice)
    for sentence in _some_conversations(sentences, f"{seed}/neural", hours):
        voice = draw_neural_voice(random.Random(f"{seed}/{sentence.group}/{sentence.speaker}"))
        requests.append(_say_again(sentence, "neural", voice))
    return requests


def plan_third_requests(sentences: Sequence[Sentence], seed: int, hours: float) -> list[Request]:
    """Let conversations of train, about so many hours, be said a third time (``/third``)."""
    chosen = _some_conversations(sentences, f"{seed}/third", hours)
    return _by_speakers(chosen, seed, "third", draw_third_voice)


def _by_speakers(
    sentences: Iterable[Sentence], seed: int, kind: str, draw: Callable[[random.Random], Voice]
) -> list[Request]:
    """Let them be said again; a speaker keeps one voice within a conversation."""
    return [
        _say_again(
            sentence,
            kind,
            draw(random.Random(f"{seed}/{kind}/{sentence.group}/{sentence.speaker}")),
        )
        for sentence in sentences
    ]


def _some_conversations(
    sentences: Sequence[Sentence], seed: str, hours: float
) -> Iterator[Sentence]:
    """Yield conversations of train in a drawn order, until about so many hours are full."""
    groups: dict[str, list[Sentence]] = {}
    for sentence in sentences:
        if sentence.split == "train":
            groups.setdefault(sentence.group, []).append(sentence)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    letters_left = hours * _LETTERS_PER_HOUR
    for sentence in chain.from_iterable(groups[name] for name in names):
        letters_left -= len(sentence.spoken)
        if letters_left < 0:
            return
        yield sentence


def _held_out_chat(
    sentences: Sequence[Sentence],
    seed: int,
    kind: str,
    draw: Callable[[random.Random], Voice],
) -> list[Request]:
    return [
        _say_again(sentence, kind, draw(random.Random(f"{seed}/{sentence.key}")))
        for sentence in sentences
        if sentence.split == "dev" and sentence.domain == "chat"
    ]


def _say_again(sentence: Sentence, kind: str, voice: Voice) -> Request:
    return Request(f"{sentence.key}/{kind}", sentence.key, voice, sentence.spoken)


def speak_alone(voice: Voice, text: str) -> NDArray[np.int16]:
    """Speak one sentence with espeak-ng, flite, festival or Hibari.

    Raises:
        SynthesisError: the engine failed or gave silence.
    """
    if voice.engine == "festival":
        return speak_with_festival([(voice, text)])[0]
    if voice.engine == "hibari":
        return speak_with_hibari(voice, text)
    return speak(voice, text)


def render(
    requests: Sequence[Request],
    folder: Path,
    processes: int,
    speaker: Speaker = speak_alone,
    shard_clips: int = _SHARD_CLIPS,
) -> None:
    """Speak all requests into a `ClipStore`; complete shards of the same requests stay.

    Args:
        requests: what is said.
        folder: of the `ClipStore`.
        processes: how many speak at once.
        speaker: what speaks one sentence; festival's are asked for at once.
        shard_clips: how many are lost at most when it is interrupted.
    """
    store = ClipStore(folder)
    starts = range(0, len(requests), shard_clips)
    shards = {number: requests[start : start + shard_clips] for number, start in enumerate(starts)}
    missing = [number for number, part in shards.items() if not store.has(number, _asked(part))]
    started = time.monotonic()
    audio_s = 0.0
    with ProcessPoolExecutor(processes) as pool:
        work = partial(_render_shard, folder=folder, speaker=speaker)
        spoken = pool.map(work, missing, [shards[number] for number in missing])
        for done, samples in enumerate(spoken, start=1):
            audio_s += samples / SAMPLE_RATE_HZ
            elapsed_s = time.monotonic() - started
            sys.stdout.write(
                f"shard {done}/{len(missing)}: {audio_s / 3600:.2f} h of speech, "
                f"{audio_s / elapsed_s:.1f} times real time\n"
            )
            sys.stdout.flush()


def _asked(requests: Sequence[Request]) -> str:
    """Return SHA-256 of what a shard says, and of who says it."""
    return hashlib.sha256("\n".join(map(repr, requests)).encode()).hexdigest()


def _render_shard(shard: int, requests: Sequence[Request], folder: Path, speaker: Speaker) -> int:
    """Speak one shard; return its length in samples.

    A sentence that its engine cannot say, or that is longer than 20 s, is left out and named.

    Raises:
        EngineMissingError: an engine is not installed, or nothing could be said: then no shard is
            written, and the same command goes on once the engine is there.
    """
    waves = _speak_festival_requests(requests)
    clips: list[Clip] = []
    kept: list[NDArray[np.int16]] = []
    for request in requests:
        try:
            wave = (
                waves[request.key] if request.key in waves else speaker(request.voice, request.text)
            )
        except EngineMissingError:
            raise
        except SynthesisError as error:
            sys.stderr.write(f"{request.key} left out: {error}\n")
            continue
        if len(wave) > _MAXIMUM_SAMPLES:
            sys.stderr.write(f"{request.key} left out: longer than 20 s\n")
            continue
        voice = f"{request.voice.engine}:{request.voice.name}"
        clips.append(Clip(request.key, request.sentence, voice, len(wave)))
        kept.append(wave)
    if requests and not clips:
        message = f"none of {len(requests)} sentences could be said, {requests[0].key} first"
        raise EngineMissingError(message)
    ClipStore(folder).write(shard, clips, kept, _asked(requests))
    return sum(len(wave) for wave in kept)


def _speak_festival_requests(requests: Sequence[Request]) -> dict[str, NDArray[np.int16]]:
    """Speak the shard's festival sentences at once; none, when one of them stops festival."""
    at_once = [request for request in requests if request.voice.engine == "festival"]
    if not at_once:
        return {}
    try:
        waves = speak_with_festival([(request.voice, request.text) for request in at_once])
    except SynthesisError as error:
        sys.stderr.write(f"festival is asked again, sentence by sentence: {error}\n")
        return {}
    return {request.key: wave for request, wave in zip(at_once, waves, strict=True)}
