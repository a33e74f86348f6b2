"""espeak-ng as a library: its command line does not say when each word is spoken."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from earvoice.corpus.sound import INT16_SCALE
from earvoice.corpus.synthesizer import (
    ESPEAK_WORDS_PER_MINUTE,
    MissingEngineError,
    SynthesisError,
    level,
)
from earvoice.corpus.voice import Voice
from earvoice.corpus.word_timing import TimedSpeech, time_words

_RETRIEVAL, _PHONEME_EVENTS, _DO_NOT_EXIT = 1, 0x0001, 0x8000
_RATE, _PITCH = 1, 3
_BY_CHARACTER = 1
_UTF8, _END_PAUSE = 1, 0x1000
_WORD_EVENT, _PHONEME_EVENT = 1, 7
_PHONEME_SEPARATOR = "_"
_STRESS = str.maketrans("", "", "',")


class _EventId(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    )


class _VoiceProperties(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_char_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


def speak_with_espeak_timed(voice: Voice, text: str) -> TimedSpeech:
    """Speak a text; starts come from the library's word events, ends from the next one.

    If a pause precedes the next word, the word ends at the pause. Words that espeak-ng runs
    together ("of the") share their time in proportion to their letters.

    Raises:
        SynthesisError: espeak-ng said nothing.
        MissingEngineError: espeak-ng is not installed.
    """
    library, rate_hz = _library()
    pieces: list[np.ndarray] = [np.zeros(0, np.int16)]
    word_events: list[tuple[int, float]] = []
    pauses_s: list[float] = []

    def receive(sound: Sequence[int], count: int, events: Sequence[_Event]) -> int:
        """Take a chunk of sound and its events."""
        if sound and count:
            pieces.append(np.ctypeslib.as_array(sound, (count,)).copy())
        index = 0
        while events[index].type:
            event = events[index]
            if event.type == _WORD_EVENT:
                word_events.append((event.text_position - 1, event.audio_position / 1000))
            elif event.type == _PHONEME_EVENT and event.id.string.startswith((b"_", b"\0")):
                pauses_s.append(event.audio_position / 1000)
            index += 1
        return 0

    callback = _Callback(receive)
    library.espeak_SetSynthCallback(callback)
    _choose_voice(library, voice.name)
    library.espeak_SetParameter(_RATE, round(ESPEAK_WORDS_PER_MINUTE * voice.rate), 0)
    library.espeak_SetParameter(_PITCH, round(voice.pitch), 0)
    content = text.encode()
    library.espeak_Synth(
        content, len(content) + 1, 0, _BY_CHARACTER, 0, _UTF8 | _END_PAUSE, None, None
    )
    library.espeak_Synchronize()
    samples = np.concatenate(pieces).astype(np.float32)
    spans = word_spans(text, word_events, pauses_s, len(samples) / rate_hz)
    duration_ms = 1000 * len(samples) / rate_hz / voice.speed
    words = time_words(text, spans, voice.speed, duration_ms)
    return level(samples / np.float32(INT16_SCALE), rate_hz, voice), words


def phonemes(words: Iterable[str]) -> list[tuple[str, ...]]:
    """How espeak-ng says each English word, in its own signs (Kirshenbaum 1992), without stress.

    Raises:
        MissingEngineError: espeak-ng is not installed.
    """
    library, _ = _library()
    _choose_voice(library, "en-us")
    told = []
    for word in words:
        text = ctypes.c_char_p(word.encode())
        said = library.espeak_TextToPhonemes(
            ctypes.byref(text), _UTF8, ord(_PHONEME_SEPARATOR) << 8
        )
        told.append(tuple(said.decode().translate(_STRESS).split(_PHONEME_SEPARATOR)))
    return told


def _choose_voice(library: ctypes.CDLL, name: str) -> None:
    """Choose a voice as the command line does: by its name, else by its language."""
    wanted = _VoiceProperties(languages=name.encode())
    if library.espeak_SetVoiceByName(name.encode()) and library.espeak_SetVoiceByProperties(
        ctypes.byref(wanted)
    ):
        message = f"espeak-ng has no voice {name!r}"
        raise SynthesisError(message)


def word_spans(
    text: str, events: Sequence[tuple[int, float]], pauses_s: Sequence[float], end_s: float
) -> list[tuple[float, float]]:
    """Return start and end of each word of `text`, in seconds.

    Args:
        text: words separated by blanks.
        events: place in the text and time of each word event, in order.
        pauses_s: when pauses begin.
        end_s: length of the sound.

    Raises:
        SynthesisError: there are no events, or none for the first word.
    """
    heads, letters = [], []
    place = 0
    for word in text.split():
        place = text.index(word, place)
        heads.append(place)
        letters.append(len(word))
        place += len(word)
    starts: dict[int, float] = {}
    for position, time_s in events:
        index = max(i for i, head in enumerate(heads) if head <= max(position, heads[0]))
        starts.setdefault(index, time_s)
    if 0 not in starts:
        message = f"espeak-ng did not tell when it says the first word of {text!r}"
        raise SynthesisError(message)
    spans: list[tuple[float, float]] = []
    told = sorted(starts)
    for first, behind in zip(told, [*told[1:], len(heads)], strict=True):
        start = starts[first]
        stop = starts.get(behind, end_s)
        stop = min([pause for pause in pauses_s if start < pause < stop], default=stop)
        share = (stop - start) / sum(letters[first:behind])
        for index in range(first, behind):
            before = share * sum(letters[first:index])
            spans.append((start + before, start + before + share * letters[index]))
    return spans


@cache
def _library() -> tuple[ctypes.CDLL, int]:
    """Return the library, ready, and its sampling rate."""
    try:
        library = ctypes.CDLL("libespeak-ng.so.1")
    except OSError as error:
        message = f"espeak-ng's library cannot be loaded: {error}"
        raise MissingEngineError(message) from error
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    rate_hz = library.espeak_Initialize(_RETRIEVAL, 0, None, _PHONEME_EVENTS | _DO_NOT_EXIT)
    if rate_hz <= 0:
        message = f"espeak-ng does not start: error {rate_hz}"
        raise MissingEngineError(message)
    return library, int(rate_hz)
