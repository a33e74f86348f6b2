"""Flite as a library: its command line does not say when each word is spoken."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from earvoice.corpus.sound import INT16_SCALE
from earvoice.corpus.synthesizer import MissingEngineError, SynthesisError, level
from earvoice.corpus.voice import Voice
from earvoice.corpus.word_timing import TimedSpeech, time_words

_START = b"R:SylStructure.daughter1.daughter1.R:Segment.p.end"
_END = b"R:SylStructure.daughtern.daughtern.R:Segment.end"


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


class _VoiceHead(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("features", ctypes.c_void_p))


def speak_with_flite_timed(voice: Voice, text: str) -> TimedSpeech:
    """Speak a text; times come from flite's segments.

    Raises:
        SynthesisError: flite said other words than those of the text.
        MissingEngineError: flite is not installed.
    """
    library, handle = _library(), _voice(voice.name)
    features = ctypes.cast(handle, ctypes.POINTER(_VoiceHead)).contents.features
    library.flite_feat_set_float(features, b"duration_stretch", 1 / voice.rate)
    utterance = library.flite_synth_text(text.encode(), handle)
    if not utterance:
        message = f"flite voice {voice.name!r} gave nothing for {text!r}"
        raise SynthesisError(message)
    try:
        wave = library.utt_wave(utterance).contents
        samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).astype(np.float32)
        rate_hz = wave.sample_rate
        spans = _token_spans(library, utterance)
    finally:
        library.delete_utterance(utterance)
    duration_ms = 1000 * len(samples) / rate_hz / voice.speed
    words = time_words(text, spans, voice.speed, duration_ms)
    return level(samples / np.float32(INT16_SCALE), rate_hz, voice), words


def _token_spans(library: ctypes.CDLL, utterance: int) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    word = library.relation_head(library.utt_relation(utterance, b"Word"))
    while word:
        start, end = (float(library.ffeature_float(word, path)) for path in (_START, _END))
        if library.item_prev(library.item_as(word, b"Token")):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        word = library.item_next(word)
    return spans


@cache
def _library() -> ctypes.CDLL:
    try:
        for name in ("libflite.so.1", "libflite_cmulex.so.1", "libflite_usenglish.so.1"):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL("libflite.so.1")
    except OSError as error:
        message = f"flite's library cannot be loaded: {error}"
        raise MissingEngineError(message) from error
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("flite_synth_text", pointer, (text, pointer)),
        ("flite_feat_set_float", None, (pointer, text, ctypes.c_float)),
        ("utt_wave", ctypes.POINTER(_Wave), (pointer,)),
        ("utt_relation", pointer, (pointer, text)),
        ("relation_head", pointer, (pointer,)),
        ("item_next", pointer, (pointer,)),
        ("item_prev", pointer, (pointer,)),
        ("item_as", pointer, (pointer, text)),
        ("ffeature_float", ctypes.c_float, (pointer, text)),
        ("delete_utterance", None, (pointer,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.flite_init()
    return library


@cache
def _voice(name: str) -> int:
    _library()
    try:
        register = getattr(ctypes.CDLL(f"libflite_cmu_us_{name}.so.1"), f"register_cmu_us_{name}")
    except (OSError, AttributeError) as error:
        message = f"flite voice {name!r} cannot be loaded: {error}"
        raise MissingEngineError(message) from error
    register.restype, register.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    return int(register(None))
