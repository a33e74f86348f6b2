"""Speak sentences with the engines of the system: espeak-ng, flite and festival."""

from __future__ import annotations

import io
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
import soxr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from earvoice.corpus.voice import Voice

SAMPLE_RATE_HZ = 16_000
_TARGET_RMS = 0.05
_SILENT_RMS = 1e-5
_TIMEOUT_S = 600
ESPEAK_WORDS_PER_MINUTE = 175
_FESTIVAL_PRELUDE = """
(define (say text path)
  (let ((utterance (eval (list 'Utterance 'Text text))))
    (utt.synth utterance)
    (utt.save.wave utterance path 'riff)))
"""


class SynthesisError(RuntimeError):
    """An engine gave no audio for a sentence."""


class EngineMissingError(SynthesisError):
    """An engine, its voice or a package of it is not installed: it would say nothing at all."""


def speak(voice: Voice, text: str) -> NDArray[np.int16]:
    """Speak one sentence with espeak-ng or flite.

    Returns:
        int16 ``[samples]`` at 16 kHz, with the same loudness for every engine.

    Raises:
        SynthesisError: the engine failed or gave silence.
    """
    if voice.engine == "espeak-ng":
        words_per_minute = round(ESPEAK_WORDS_PER_MINUTE * voice.rate)
        options = ["-v", voice.name, "-s", str(words_per_minute), "-p", str(round(voice.pitch))]
        command = ["espeak-ng", *options, "--stdin", "--stdout"]
        return _finish(io.BytesIO(run(command, text.encode())), voice)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        stretch = f"duration_stretch={1 / voice.rate:.3f}"
        run(["flite", "-voice", voice.name, "--setf", stretch, "-t", f"{text} ", "-o", str(path)])
        return _finish(path, voice)


def speak_with_festival(
    requests: Sequence[tuple[Voice, str]],
) -> list[NDArray[np.int16]]:
    """Speak many sentences in one festival process, because its start takes long.

    Returns:
        For each request int16 ``[samples]`` at 16 kHz.

    Raises:
        SynthesisError: festival failed, or left out a sentence.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{index}.wav" for index in range(len(requests))]
        lines = [_FESTIVAL_PRELUDE]
        for (voice, text), path in zip(requests, paths, strict=True):
            lines.append(f'{festival_voice(voice)}\n(say "{quoted(text)}" "{path}")')
        script = Path(folder) / "speak.scm"
        script.write_text("\n".join(lines), encoding="latin-1", errors="replace")
        run(["festival", "--batch", str(script)])
        return [_finish(path, voice) for (voice, _), path in zip(requests, paths, strict=True)]


def festival_voice(voice: Voice) -> str:
    """Return the commands that choose a voice."""
    if not voice.name.endswith("_hts"):
        stretch = f"(Parameter.set 'Duration_Stretch {1 / voice.rate:.3f})"
        return f"(voice_{voice.name}) {stretch}"
    # The HTS engine takes the first value it finds of each option.
    options = f'("-fm" {voice.pitch:.2f}) ("-a" {voice.warp:.3f}) ("-r" {voice.rate:.3f})'
    prepend = f"(set! hts_engine_params (append '({options}) hts_engine_params))"
    return f"(voice_{voice.name}) {prepend}"


def quoted(text: str) -> str:
    """Return a text as it may stand in a string of festival's language."""
    return text.replace("\\", " ").replace('"', " ")


def require(engine: str, module: str) -> Any:
    """Return a module of the extra ``neural-voices``.

    Raises:
        EngineMissingError: it is missing.
    """
    try:
        return import_module(module)
    except ImportError as error:
        message = f"{engine}: {error}; `pip install earvoice[neural-voices]` brings it"
        raise EngineMissingError(message) from error


def run(command: list[str], text: bytes = b"") -> bytes:
    """Run an engine; return what it wrote.

    Raises:
        SynthesisError: it failed.
    """
    done = subprocess.run(command, input=text, capture_output=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        message = f"{command[0]} ended with {done.returncode}: {done.stderr.decode()[-500:]}"
        raise SynthesisError(message)
    return done.stdout


def _finish(source: Path | io.BytesIO, voice: Voice) -> NDArray[np.int16]:
    """Read what an engine wrote, and `level` it."""
    try:
        samples, rate_hz = soundfile.read(source, dtype="float32")
    except soundfile.LibsndfileError as error:
        message = f"{voice.engine} voice {voice.name!r}: no readable audio: {error}"
        raise SynthesisError(message) from error
    return level(samples, rate_hz, voice)


def level(samples: NDArray[np.float32], rate_hz: float, voice: Voice) -> NDArray[np.int16]:
    """Resample [samples] to 16 kHz, `voice.speed` times faster, and level the loudness.

    Raises:
        SynthesisError: all is silence.
    """
    samples = soxr.resample(samples, rate_hz * voice.speed, SAMPLE_RATE_HZ, quality="HQ")
    rms = float(np.sqrt(np.mean(np.square(samples)))) if samples.size else 0.0
    if rms < _SILENT_RMS:
        message = f"{voice.engine} voice {voice.name!r} gave silence"
        raise SynthesisError(message)
    levelled = np.clip(samples * (_TARGET_RMS / rms), -1.0, 1.0)
    return np.asarray(np.round(levelled * 32_767), dtype=np.int16)
