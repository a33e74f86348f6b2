"""Encodes an input as the encoder service does, at every boundary that a policy may ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.client.audio_file import AudioFile
from earvoice.client.errors import AudioSourceError
from earvoice.decoder.loading import describe
from earvoice.decoder.model import ServedModel
from earvoice.encoder.audio_format import AudioEncoding, AudioFormat
from earvoice.encoder.command import Encoded
from earvoice.encoder.model import load_model
from earvoice.encoder.network import Network
from earvoice.encoder.resampler import Resampler
from earvoice.encoder.service import fill_encoded
from earvoice.encoder.settings import EncoderSettings
from earvoice.encoder.utterance import Hearing, Utterance
from earvoice.evaluation.recording import (
    Description,
    Grid,
    RecordedInput,
    Recording,
    RecordingError,
    Revision,
)
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.source_list import SourceRecording
from earvoice.evaluation.served_model import MODEL_FILE, write_served_model
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.errors import ModelError
from earvoice.models.precision import Precision
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.model_facts import ModelFacts
from earvoice.runtime.settings import SettingsError, load_settings

_CHUNK_MS = 1000


class RecordError(Exception):
    """A model that cannot be loaded, or an input that cannot be encoded."""


class Recorder:
    """Makes the revisions of one input after the other.

    Args:
        network: the encoder service's model.
        grids: whose boundaries to keep.
        clock_s: what computation is measured with. The time of the thread alone
            (``time.thread_time``) tells on a busy CPU what an idle one would take.
    """

    def __init__(
        self, network: Network, grids: Sequence[Grid], clock_s: Callable[[], float]
    ) -> None:
        self._network = network
        self._grids = grids
        self._clock_s = clock_s

    def record(
        self, audio: bytes, audio_format: AudioFormat
    ) -> list[tuple[Revision, pb.EncodeResponse]]:
        """Return the revisions of an utterance by their ends, the final one last.

        Args:
            audio: all of it, whole frames.
            audio_format: of ``audio``.

        Raises:
            InvalidAudioError: a value is no amplitude.
        """
        rate_hz = audio_format.sample_rate_hz
        resampler = Resampler(rate_hz, SAMPLE_RATE_HZ)
        utterance = Utterance(self._network, audio_format, resampler, start_sample=0)
        sample_count = audio_format.frame_count(audio)
        ends = {end for grid in self._grids for end in grid.boundaries(rate_hz, sample_count)}
        revisions: list[tuple[Revision, pb.EncodeResponse]] = []
        hearing_s, last = 0.0, 0
        for end in [*sorted(ends), sample_count]:
            final = len(revisions) == len(ends)
            started_s = self._clock_s()
            utterance.add(audio[last * audio_format.frame_bytes : end * audio_format.frame_bytes])
            heard_s = self._clock_s()
            hearing = utterance.finish(end) if final else utterance.hear()
            encoded_s = self._clock_s()
            hearing_s += heard_s - started_s
            revision = Revision(end, final, hearing_s * 1000, (encoded_s - heard_s) * 1000)
            number = len(revisions) + 1
            revisions.append((revision, self._message(hearing, number, final=final)))
            last = end
        return revisions

    def _message(self, hearing: Hearing, number: int, *, final: bool) -> pb.EncodeResponse:
        transcript = self._network.transcribe(hearing.words.labels) if final else ""
        message = pb.EncodeResponse()
        fill_encoded(
            message.encoded,
            Encoded(
                utterance=0,
                revision=number,
                final=final,
                hearing=hearing,
                source_transcript=transcript,
            ),
        )
        return message


def record_inputs(
    model_path: Path,
    sources: Sequence[SourceRecording],
    grids: Sequence[Grid],
    recording: Recording,
    progress: RunProgress,
    model_hash: str = "",
) -> None:
    """Record what is not recorded yet.

    Args:
        model_path: the checkpoint.
        sources: the test set.
        grids: boundaries to keep.
        recording: a new one, or one made in the same way.
        progress: told of each input.
        model_hash: what the model must have; empty takes any.

    Raises:
        RecordError: the model cannot be loaded, or an input cannot be encoded.
        RecordingError: the model is another, or the recording was made in another way or of
            another test set.
    """
    try:
        # One thread on the CPU: its time is computation, whatever else the machine does.
        settings = load_settings(
            EncoderSettings, model_path=model_path, device="cpu", torch_threads=1
        )
        model = load_model(settings)
    except SettingsError as error:
        raise RecordError(str(error)) from error
    except ModelError as error:
        raise RecordError(f"model {model_path}: {error}") from error
    facts = model.facts
    if facts.computes_in_int8:
        raise RecordError("EARVOICE_ENCODER_PRECISION = 'int8'; recordings take: fp32, bf16, auto")
    if model_hash not in ("", facts.hash):
        raise RecordingError(
            f"{model_path} has hash {facts.hash}, the model served has {model_hash}: "
            "EARVOICE_ENCODER_MODEL_PATH must name the model served"
        )
    names = tuple(str(grid) for grid in grids)
    recording.begin(Description(facts.name, facts.hash, facts.computes_in_bfloat16, names))
    if not (recording.folder / MODEL_FILE).exists():
        write_served_model(recording.folder, _described(model_path, facts))
    done = _check_sources(recording, sources)
    recorder = Recorder(model, grids, time.thread_time)
    for source in sources:
        if source.index not in done:
            if source.duration_ms > settings.max_utterance_ms:
                raise RecordError(
                    f"{source.path} is {source.duration_ms:.0f} ms long; an utterance may have "
                    f"{settings.max_utterance_ms} ms (EARVOICE_ENCODER_MAX_UTTERANCE_MS)"
                )
            _record_input(source, recorder, recording)
            progress.count(source.duration_ms)
    progress.close()


def _described(model_path: Path, facts: ModelFacts) -> ServedModel:
    precision: Precision = "bf16" if facts.computes_in_bfloat16 else "fp32"
    return describe(load_checkpoint(model_path, precision=precision), "")


def _check_sources(recording: Recording, sources: Sequence[SourceRecording]) -> set[int]:
    """Return the indices recorded already, once they are found to be of this test set."""
    found = {item.index: item.source_recording for item in recording.inputs()}
    for source in sources:
        before = found.get(source.index)
        if before is not None and not source.is_same(before):
            raise RecordingError(
                f"{recording.folder} is of another test set: input {source.index} is {before.path} "
                f"there, {source.path} with its reference now; give another --output"
            )
    return set(found)


def _record_input(source: SourceRecording, recorder: Recorder, recording: Recording) -> None:
    try:
        with AudioFile(source.path) as file:
            audio = b"".join(file.chunks(_CHUNK_MS))
            encoding = AudioEncoding[file.audio.encoding.upper()]
            audio_format = AudioFormat(
                encoding, file.audio.sample_rate_hz, file.audio.channel_count
            )
        revisions = recorder.record(audio, audio_format)
    except AudioSourceError as error:
        raise RecordError(f"{source.path}: {error.message}") from error
    except EarvoiceError as error:
        raise RecordError(f"{source.path}: {error}") from error
    recorded = RecordedInput(
        source.index,
        str(source.path),
        source.reference,
        audio_format.sample_rate_hz,
        audio_format.frame_count(audio),
        tuple(revision for revision, _ in revisions),
    )
    recording.add(recorded, [message for _, message in revisions])
