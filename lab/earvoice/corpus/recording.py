"""Real recordings: transcribed LJ Speech and unlabelled LibriSpeech clips."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import soxr

from earvoice.corpus.sentence import Sentence
from earvoice.corpus.spoken import spoken_form, transcript

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
VOICES = "librispeech-unlabelled"
"""The folder of clips whose words are not known: one a speaker."""
_DEV_EVERY = 12
_HELD_OUT_EVERY = 5


def read_ljspeech(speech: Path) -> list[Sentence]:
    """Return LJ Speech's transcripts, without translation; every twelfth clip is a dev clip."""
    sentences = []
    with (speech / "ljspeech" / "transcripts.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for index, row in enumerate(rows):
            split = "dev" if index % _DEV_EVERY == 0 else "train"
            words = row["transcript_normalised"]
            sentences.append(untranslated("ljspeech", row["utt"], split, str(index), words))
    return sentences


def untranslated(domain: str, name: str, split: str, place: str, words: str) -> Sentence:
    """Return what is said in a recording that has no translation.

    Args:
        domain: the recordings' name; also the speaker's.
        name: unique within the domain.
        split: ``train`` or ``dev``.
        place: names the conversation, which is the recording alone.
        words: as written.
    """
    spoken = spoken_form(words)
    return Sentence(
        key=f"{domain}-{name}",
        split=split,
        domain=domain,
        group=f"{split}-{domain}-{place}",
        speaker=domain,
        spoken=spoken,
        transcript=transcript(spoken),
        german="",
        spanish="",
    )


def list_recordings(speech: Path, name: str) -> list[Path]:
    """Return the clips of one folder of recordings, sorted by name."""
    return sorted((speech / name).glob("*.flac"))


def list_training_voices(speech: Path) -> list[Path]:
    """Return the clips of `VOICES` whose speakers the tests do not use."""
    return [path for path in list_recordings(speech, VOICES) if not is_held_out_voice(path)]


def is_held_out_voice(path: Path) -> bool:
    """Tell whether the speaker of a LibriSpeech clip, ``103-1240-0000.flac``, is kept for tests."""
    return int(path.stem.split("-")[0]) % _HELD_OUT_EVERY == 0


def read_recording(path: Path) -> NDArray[np.float32]:
    """Read a recording of any rate and channel count as float32 [samples] at 16 kHz."""
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    resampled = soxr.resample(samples.mean(axis=1), rate_hz, SAMPLE_RATE_HZ, quality="HQ")
    return np.asarray(resampled, dtype=np.float32)
