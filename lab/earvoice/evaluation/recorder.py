"""Encodes an input as the encoder service does, at every boundary that a policy may request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.cli.local_services import read_settings
from earvoice.client.audio_file import AudioFile
from earvoice.client.errors import AudioSourceError
from earvoice.decoder.loading import describe
from earvoice.encoder.audio import Resampler, frame_count
from earvoice.encoder.model import load_model
from earvoice.encoder.network import Network
from earvoice.encoder.settings import EncoderSettings
from earvoice.encoder.text import TextNetwork
from earvoice.encoder.utterance import Utterance
from earvoice.evaluation.recording import (
    MODEL_FILE,
    Description,
    Grid,
    RecordedInput,
    Recording,
    RecordingError,
    Revision,
    check_recordable,
    write_served_model,
)
from earvoice.evaluation.run_folder import RunProgress
from earvoice.evaluation.source_set import SourceRecording
from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.errors import ModelError
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.files import digest_of

_CHUNK_MS = 1000


def encode_revisions(
    network: Network, grids: Sequence[Grid], audio: bytes, audio_format: AudioFormat
) -> list[tuple[Revision, pb.EncodeResponse]]:
    """Return the revisions of an utterance in order of their ends, the final one last.

    Computation is this thread's CPU time, so that a busy machine does not inflate it.
    """
    rate_hz = audio_format.sample_rate_hz
    utterance = Utterance(network, audio_format, Resampler(rate_hz, SAMPLE_RATE_HZ), start_sample=0)
    sample_count = frame_count(audio_format, audio)
    ends = {end for grid in grids for end in grid.boundaries(rate_hz, sample_count)}
    revisions: list[tuple[Revision, pb.EncodeResponse]] = []
    hearing_s, last = 0.0, 0
    for end in [*sorted(ends), sample_count]:
        final = len(revisions) == len(ends)
        started_s = time.thread_time()
        utterance.add(audio[last * audio_format.frame_bytes : end * audio_format.frame_bytes])
        heard_s = time.thread_time()
        encoded = (
            utterance.finish(end, transcribe=True) if final else utterance.encode(transcribe=True)
        )
        encoded_s = time.thread_time()
        hearing_s += heard_s - started_s
        revision = Revision(end, final, hearing_s * 1000, (encoded_s - heard_s) * 1000)
        encoded.states.states_id.revision = len(revisions) + 1
        revisions.append((revision, pb.EncodeResponse(encoded=encoded)))
        last = end
    return revisions


def record_inputs(
    model_path: Path,
    sources: Sequence[SourceRecording],
    grids: Sequence[Grid],
    recording: Recording,
    progress: RunProgress,
    model_hash: str = "",
) -> None:
    """Record the missing inputs, into a recording that is new or was made in the same way."""
    # One CPU thread: its time is the computation, whatever else the machine does.
    settings = read_settings(EncoderSettings, model_path=model_path, device="cpu", torch_threads=1)
    check_recordable(settings)
    try:
        model = load_model(settings)
    except ModelError as error:
        raise RecordingError(f"model {model_path}: {error}") from error
    if isinstance(model, TextNetwork):
        raise RecordingError(f"model {model_path} reads words; recordings take models that hear")
    told = model.description
    if model_hash not in ("", told.hash):
        raise RecordingError(
            f"{model_path} has hash {told.hash}, the model served has {model_hash}: "
            "EARVOICE_ENCODER_MODEL_PATH must name the model served"
        )
    names = tuple(str(grid) for grid in grids)
    in_bfloat16 = told.precision == types_pb2.ELEMENT_TYPE_BFLOAT16
    recording.begin(Description(told.name, told.hash, in_bfloat16, names))
    if not (recording.folder / MODEL_FILE).exists():
        checkpoint = load_checkpoint(model_path, precision="bf16" if in_bfloat16 else "fp32")
        write_served_model(recording.folder, describe(checkpoint, ""))
    done = _check_sources(recording, sources)
    missing = [source for source in sources if source.index not in done]
    _check_lengths(missing, settings.max_utterance_ms, told.longest_utterance_ms)
    for source in missing:
        _record_input(source, model, grids, recording)
        progress.count(source.duration_ms)
    progress.close()


def _check_sources(recording: Recording, sources: Sequence[SourceRecording]) -> set[int]:
    wanted = {source.index: source for source in sources}
    inputs = recording.inputs()
    for before in inputs:
        source = wanted.get(before.index)
        if source is None:
            raise RecordingError(
                f"{recording.folder} is of another test set: input {before.index} is "
                f"{before.source} there, and none of the recordings now; give another --output"
            )
        is_other_sound = before.digest and before.digest != digest_of([source.path])
        if is_other_sound or not source.is_same(before.source_recording):
            raise RecordingError(
                f"{recording.folder} is of another test set: input {source.index} is "
                f"{before.source} there, {source.path} with its reference now; give another "
                "--output"
            )
    return {before.index for before in inputs}


def _check_lengths(sources: Sequence[SourceRecording], limit_ms: int, heard_ms: int) -> None:
    """Reject recordings that a stream could not encode as one utterance.

    Args:
        limit_ms: of the encoder service.
        heard_ms: most audio that the model can take; 0 for no limit.
    """
    reason = "EARVOICE_ENCODER_MAX_UTTERANCE_MS"
    if 0 < heard_ms < limit_ms:
        limit_ms, reason = heard_ms, "all that this model hears"
    too_long = [source for source in sources if source.duration_ms > limit_ms]
    if too_long:
        first = too_long[0]
        raise RecordingError(
            f"{len(too_long)} of {len(sources)} recordings are too long: {first.path} is "
            f"{first.duration_ms:.0f} ms long; an utterance may have {limit_ms} ms ({reason})"
        )


def _record_input(
    source: SourceRecording, network: Network, grids: Sequence[Grid], recording: Recording
) -> None:
    try:
        with AudioFile(source.path) as file:
            audio = b"".join(file.chunks(_CHUNK_MS))
        revisions = encode_revisions(network, grids, audio, file.audio)
    except AudioSourceError as error:
        raise RecordingError(f"{source.path}: {error.message}") from error
    except EarvoiceError as error:
        raise RecordingError(f"{source.path}: {error}") from error
    recorded = RecordedInput(
        source.index,
        str(source.path),
        source.reference,
        file.audio.sample_rate_hz,
        frame_count(file.audio, audio),
        tuple(revision for revision, _ in revisions),
        digest_of([source.path]),
    )
    recording.add(recorded, [message for _, message in revisions])
