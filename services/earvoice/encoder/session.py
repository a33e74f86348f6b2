"""One session's rules: which command may come when, and what it does. Knows nothing of gRPC."""

from __future__ import annotations

import dataclasses

from earvoice.encoder.audio_format import AudioFormat
from earvoice.encoder.command import (
    Answer,
    Audio,
    Command,
    Encoded,
    Finish,
    Open,
    Opened,
    Reset,
    ResetDone,
)
from earvoice.encoder.network import Network
from earvoice.encoder.resampler import Resampler
from earvoice.encoder.utterance import Utterance
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.runtime.errors import (
    InvalidFieldError,
    ModelMismatchError,
    OutOfOrderError,
    SessionTooLongError,
)

LAST_START_SAMPLE = 2**62
"""Positions on the wire have 64 bits; behind this one an utterance still fits."""


@dataclasses.dataclass
class _Opened:
    """What an open session holds."""

    audio_format: AudioFormat
    resampler: Resampler
    enable_source_transcript: bool
    skip_silence: bool
    utterance: Utterance
    utterance_index: int = 0
    revision: int = 0
    finished: bool = False


class EncodeSession:
    """Audio in, one answer a command.

    Args:
        network: the model, shared by all sessions.
        max_utterance_ms: longest utterance; bounds memory and the cost of a revision.

    Attributes:
        revision_count: revisions answered so far.
        sample_count: samples received so far, all utterances together.
    """

    def __init__(self, network: Network, max_utterance_ms: int) -> None:
        self._network = network
        self._max_utterance_ms = max_utterance_ms
        self._open: _Opened | None = None
        self.revision_count = 0
        self.sample_count = 0

    @property
    def audio_seconds(self) -> float:
        """Audio received so far, all utterances together."""
        return self.sample_count / self._open.audio_format.sample_rate_hz if self._open else 0.0

    def apply(self, command: Command) -> Answer:
        """Do what a command says; computes, so it belongs in the engine's thread.

        After an error the session must not be used again.

        Raises:
            OutOfOrderError: the command may not come now, or its revision is not the next.
            ModelMismatchError: the caller expects another model.
            InvalidFieldError: a position is outside what it may be.
            InvalidAudioError: the audio has broken frames or values that are no amplitudes.
            SessionTooLongError: the utterance would be longer than allowed.
        """
        if isinstance(command, Open):
            return self._opened(command)
        if self._open is None:
            raise OutOfOrderError("the first command must be open")
        if isinstance(command, Reset):
            return self._reset(self._open, command)
        return self._encoded(self._open, command)

    def _opened(self, command: Open) -> Opened:
        if self._open is not None:
            raise OutOfOrderError("the session is open already; open comes once")
        served = self._network.facts.hash
        if command.model_hash not in ("", served):
            raise ModelMismatchError(
                f"the model served has hash {served}, not {command.model_hash!r}",
                served=served,
                expected=command.model_hash[:200],
            )
        audio_format = command.audio_format
        resampler = Resampler(audio_format.sample_rate_hz, SAMPLE_RATE_HZ)
        self._open = _Opened(
            audio_format=audio_format,
            resampler=resampler,
            enable_source_transcript=command.enable_source_transcript,
            skip_silence=command.skip_silence,
            utterance=Utterance(self._network, audio_format, resampler, start_sample=0),
        )
        return Opened(self._network.facts)

    def _reset(self, session: _Opened, command: Reset) -> ResetDone:
        if command.utterance < 0:
            raise InvalidFieldError("reset.utterance", command.utterance, "0 or more")
        if not 0 <= command.start_sample <= LAST_START_SAMPLE:
            allowed = f"0 to {LAST_START_SAMPLE}"
            raise InvalidFieldError("reset.start_sample", command.start_sample, allowed)
        session.utterance = Utterance(
            self._network, session.audio_format, session.resampler, command.start_sample
        )
        session.utterance_index = command.utterance
        session.revision = 0
        session.finished = False
        return ResetDone(command.utterance)

    def _encoded(self, session: _Opened, command: Audio | Finish) -> Encoded:
        if session.finished:
            raise OutOfOrderError("the utterance is finished; allowed: reset")
        if command.revision != session.revision + 1:
            raise OutOfOrderError(
                f"revision = {command.revision} after {session.revision}; "
                f"allowed: {session.revision + 1}"
            )
        self._add(session, command.data)
        session.revision = command.revision
        session.finished = isinstance(command, Finish)
        hearing = (
            session.utterance.finish(_checked_end(session.utterance, command.end_sample))
            if isinstance(command, Finish)
            else session.utterance.hear(skip_silence=session.skip_silence)
        )
        self.revision_count += 1
        transcribed = session.finished and session.enable_source_transcript
        return Encoded(
            utterance=session.utterance_index,
            revision=session.revision,
            final=session.finished,
            hearing=hearing,
            source_transcript=(
                self._network.transcribe(hearing.words.labels) if transcribed else ""
            ),
        )

    def _add(self, session: _Opened, data: bytes) -> None:
        added = session.audio_format.frame_count(data)
        rate_hz = session.audio_format.sample_rate_hz
        allowed = self._max_utterance_ms * rate_hz // 1000
        total = session.utterance.received_count + added
        if total > allowed:
            raise SessionTooLongError(
                f"the utterance would be {total * 1000 // rate_hz} ms long; "
                f"allowed: {self._max_utterance_ms} ms",
                allowed_ms=str(self._max_utterance_ms),
            )
        session.utterance.add(data)
        self.sample_count += added


def _checked_end(utterance: Utterance, end_sample: int) -> int:
    if not utterance.start_sample <= end_sample <= utterance.end_sample:
        raise InvalidFieldError(
            "finish.end_sample",
            end_sample,
            f"{utterance.start_sample} (the utterance's start) to {utterance.end_sample} "
            "(the end of the audio received)",
        )
    return end_sample
