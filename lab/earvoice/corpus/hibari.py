"""Hibari, a small neural synthesiser with one voice: a hundred times real time on one core.

Its network (Apache-2.0) was trained to imitate Kokoro's voice ``af_heart`` and is part of the
package.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earvoice.corpus.synthesizer import MissingEngineError, level
from earvoice.corpus.voice import Voice

_RATE_HZ = 24_000


def speak_with_hibari(voice: Voice, text: str) -> NDArray[np.int16]:
    """Speak one sentence; deterministic.

    Args:
        voice: ``name`` is ``heart``.
        text: in spoken form.

    Returns:
        int16 ``[samples]`` at 16 kHz, with the loudness of every other engine.

    Raises:
        SynthesisError: it gave silence.
        MissingEngineError: the package is missing.
    """
    waveform = _network(voice.name)(text, speed=voice.rate, seed=zlib.crc32(text.encode()))
    return level(np.asarray(waveform, np.float32), _RATE_HZ, voice)


@cache
def _network(name: str) -> Any:
    try:
        package: Any = import_module("hibari")
    except ImportError as error:
        message = f"hibari: {error}; `pip install earvoice[neural-voices]` brings it"
        raise MissingEngineError(message) from error
    return package.Hibari(voice=name, threads=1)
