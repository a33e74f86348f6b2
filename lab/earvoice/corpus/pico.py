"""Pico, a small statistical synthesiser, by its C interface; only the CTC branch trains on it.

The Python package ttspico (Apache-2.0) builds it and ships its voices; that package's own interface
does not work with current Python versions.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earvoice.corpus.sound import INT16_SCALE, SAMPLE_RATE_HZ
from earvoice.corpus.synthesizer import MissingEngineError, SynthesisError, level
from earvoice.corpus.voice import Voice

_VOICES = {
    "en-US": ("en-US_ta.bin", "en-US_lh0_sg.bin"),
    "en-GB": ("en-GB_ta.bin", "en-GB_kh0_sg.bin"),
    "de-DE": ("de-DE_ta.bin", "de-DE_gl0_sg.bin"),
    "es-ES": ("es-ES_ta.bin", "es-ES_zl0_sg.bin"),
    "fr-FR": ("fr-FR_ta.bin", "fr-FR_nk0_sg.bin"),
    "it-IT": ("it-IT_ta.bin", "it-IT_cm0_sg.bin"),
}
_PACKAGE, _MODULE = "ttspico", "ctts"
_MEMORY_BYTES = 2_500_000
_NAME_BYTES = 200
_BUFFER_BYTES = 128
_BUSY, _IDLE = 201, 200


def is_installed() -> bool:
    """Whether Pico can speak."""
    return _find_library() is not None


def speak_with_pico(voice: Voice, text: str) -> NDArray[np.int16]:
    """Speak one sentence.

    Args:
        voice: ``en-US``, ``en-GB`` or another of `_VOICES`; rate 0.5 to 2.
        text: in spoken form.

    Returns:
        int16 ``[samples]`` at 16 kHz, with the loudness of every other engine.

    Raises:
        SynthesisError: Pico failed.
        MissingEngineError: Pico is not installed.
    """
    said = f'<speed level="{round(100 * voice.rate)}">{_escaped(text)}</speed>'
    try:
        sound = _said(voice.name, said.encode() + b"\0")
    except SynthesisError:
        _engine.cache_clear()  # once it has failed, it fails on every later text
        raise
    samples = np.frombuffer(sound, np.int16).astype(np.float32) / np.float32(INT16_SCALE)
    return level(samples, SAMPLE_RATE_HZ, voice)


def _said(name: str, pending: bytes) -> bytes:
    engine, _ = _engine(name)
    taken, buffer = ctypes.c_int16(), ctypes.create_string_buffer(_BUFFER_BYTES)
    size, kind = ctypes.c_int16(), ctypes.c_int16()
    sound = bytearray()
    while pending:
        _check(_library().pico_putTextUtf8(engine, pending, len(pending), ctypes.byref(taken)))
        pending = pending[taken.value :]
        status = _BUSY
        while status == _BUSY:
            status = _library().pico_getData(
                engine, buffer, _BUFFER_BYTES, ctypes.byref(size), ctypes.byref(kind)
            )
            sound += buffer.raw[: size.value]
        if status != _IDLE:
            _check(status)
    return bytes(sound)


def _find_library() -> str | None:
    found = importlib.util.find_spec(_MODULE)
    return found.origin if found else None


def _escaped(text: str) -> str:
    return text.replace("&", " and ").replace("<", " ").replace(">", " ")


@cache
def _engine(name: str) -> tuple[ctypes.c_void_p, ctypes.Array[ctypes.c_char]]:
    """Load a voice for the life of the process; return it and the memory that it lives in."""
    library, folder = _library(), Path(sys.prefix) / "languages"
    memory = ctypes.create_string_buffer(_MEMORY_BYTES)
    system = ctypes.c_void_p()
    _check(library.pico_initialize(memory, _MEMORY_BYTES, ctypes.byref(system)))
    _check(library.pico_createVoiceDefinition(system, name.encode()))
    for file in _VOICES[name]:
        resource, resource_name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
        path = str(folder / file).encode()
        _check(library.pico_loadResource(system, path, ctypes.byref(resource)))
        _check(library.pico_getResourceName(system, resource, resource_name))
        _check(library.pico_addResourceToVoiceDefinition(system, name.encode(), resource_name))
    engine = ctypes.c_void_p()
    _check(library.pico_newEngine(system, name.encode(), ctypes.byref(engine)))
    return engine, memory


@cache
def _library() -> ctypes.CDLL:
    if not is_installed():
        message = f"pico is not installed: `pip install {_PACKAGE}` builds it"
        raise MissingEngineError(message)
    return ctypes.CDLL(_find_library())


def _check(status: int) -> None:
    if status != 0:
        message = f"pico ended with status {status}"
        raise SynthesisError(message)
