"""The recordings of a run; ``cc_<count>_<first>.wav`` stands for several, one after the other."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from earvoice.client.audio_file import AudioFile
from earvoice.client.audio_format import AudioFormat
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.verification.recorded_run import RecordedInstance

JOINED = re.compile(r"cc_(\d+)_(\d+)\.wav")
CHUNK_MS = 500
LENGTH_TOLERANCE_MS = 0.1


@dataclass(frozen=True)
class JoinedRecording:
    """Audio that is sent as one.

    Attributes:
        audio: its format.
        chunks: its bytes.
    """

    audio: AudioFormat
    chunks: tuple[bytes, ...]


def read_recording(instance: RecordedInstance, folder: Path) -> JoinedRecording:
    """Read the audio of an instance.

    Raises:
        LogError: the folder does not hold it, or it has another length than the run says.
        AudioSourceError: a file cannot be read as a recording.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(AudioFile(path)) for path in _paths(instance.wav, folder)]
        formats = {file.audio for file in files}
        if len(formats) != 1:
            raise LogError(instance.wav, f"joins recordings of different formats: {formats}")
        duration_ms = sum(file.duration_ms for file in files)
        if abs(duration_ms - instance.source_ms) > LENGTH_TOLERANCE_MS:
            raise LogError(
                instance.wav, f"lasts {duration_ms} ms: the run says {instance.source_ms} ms"
            )
        chunks = tuple(chunk for file in files for chunk in file.chunks(CHUNK_MS))
        return JoinedRecording(formats.pop(), chunks)


def _paths(name: str, folder: Path) -> list[Path]:
    if (folder / name).is_file():
        return [folder / name]
    joined = JOINED.fullmatch(name)
    if joined is None:
        raise LogError(str(folder), f"has no {name}")
    count, first = (int(number) for number in joined.groups())
    paths = [path for path in sorted(folder.glob("*.wav")) if not JOINED.fullmatch(path.name)]
    if count < 1 or first + count > len(paths):
        raise LogError(str(folder), f"has {len(paths)} recordings, too few for {name}")
    return paths[first : first + count]
