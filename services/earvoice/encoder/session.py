"""One session's rules: which request may come when, and what it does. Knows nothing of calls."""

from __future__ import annotations

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.encoder.audio import Resampler, frame_count, read_format
from earvoice.encoder.network import Network
from earvoice.encoder.text import TextNetwork, TextUtterance
from earvoice.encoder.utterance import Utterance
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.runtime.errors import (
    InvalidFieldError,
    ModelMismatchError,
    OutOfOrderError,
    SessionTooLongError,
)

LAST_START_SAMPLE = 2**62
"""Positions on the wire have 64 bits; after this one an utterance still fits."""


class EncodeSession:
    """Audio in, one answer per request.

    Args:
        max_utterance_ms: longest utterance; bounds memory and the cost of a revision.

    Attributes:
        sample_count: samples received so far, all utterances together.
    """

    def __init__(self, network: Network | TextNetwork, max_utterance_ms: int) -> None:
        self._network = network
        self._max_utterance_ms = max_utterance_ms
        self._options = pb.EncodeOpen()
        self._utterance: Utterance | TextUtterance | None = None
        self._utterance_index = 0
        self._revision = 0
        self._finished = False
        self.revision_count = 0
        self.sample_count = 0

    @property
    def session_id(self) -> str:
        return self._options.session_id

    @property
    def audio_seconds(self) -> float:
        if self._utterance is None:
            return 0.0
        return self.sample_count / self._utterance.audio_format.sample_rate_hz

    def apply(self, request: pb.EncodeRequest) -> pb.EncodeResponse:
        """Do what a request says, in the engine's thread.

        After an error the session must not be used again.
        """
        command = request.WhichOneof("command")
        if command is None:
            raise InvalidFieldError("command", "none", "open, audio, finish or reset")
        if command == "open":
            return self._open(request.open)
        if self._utterance is None:
            raise OutOfOrderError("the first command must be open")
        if command == "reset":
            return self._reset(self._utterance, request.reset)
        message = request.audio if command == "audio" else request.finish
        return self._encode(self._utterance, message)

    def _open(self, message: pb.EncodeOpen) -> pb.EncodeResponse:
        audio_format = read_format(message.audio_format)
        if self._utterance is not None:
            raise OutOfOrderError("the session is open already; open comes once")
        served = self._network.description.hash
        if message.model_hash not in ("", served):
            raise ModelMismatchError(
                f"the model served has hash {served}, not {message.model_hash!r}",
                served=served,
                expected=message.model_hash[:200],
            )
        reads = isinstance(self._network, TextNetwork)
        if reads != (audio_format.encoding == "words"):
            allowed = "words, which this model reads" if reads else "sound: this model hears"
            raise InvalidFieldError("audio_format.encoding", audio_format.encoding, allowed)
        self._options = message
        if isinstance(self._network, TextNetwork):
            self._utterance = TextUtterance(self._network, start_sample=0)
        else:
            resampler = Resampler(audio_format.sample_rate_hz, SAMPLE_RATE_HZ)
            self._utterance = Utterance(self._network, audio_format, resampler, start_sample=0)
        return pb.EncodeResponse(opened=pb.EncodeOpened(model=self._network.description))

    def _reset(
        self, utterance: Utterance | TextUtterance, message: pb.EncodeReset
    ) -> pb.EncodeResponse:
        if message.utterance < 0:
            raise InvalidFieldError("reset.utterance", message.utterance, "0 or more")
        if not 0 <= message.start_sample <= LAST_START_SAMPLE:
            allowed = f"0 to {LAST_START_SAMPLE}"
            raise InvalidFieldError("reset.start_sample", message.start_sample, allowed)
        self._utterance = utterance.another(message.start_sample)
        self._utterance_index = message.utterance
        self._revision = 0
        self._finished = False
        return pb.EncodeResponse(reset_done=pb.EncodeResetDone(utterance=message.utterance))

    def _encode(
        self, utterance: Utterance | TextUtterance, message: pb.EncodeAudio | pb.EncodeFinish
    ) -> pb.EncodeResponse:
        if self._finished:
            raise OutOfOrderError("the utterance is finished; allowed: reset")
        if message.revision != self._revision + 1:
            raise OutOfOrderError(
                f"revision = {message.revision} after {self._revision}; "
                f"allowed: {self._revision + 1}"
            )
        self._add(utterance, message.data)
        self._revision = message.revision
        if isinstance(message, pb.EncodeFinish):
            self._finished = True
            encoded = utterance.finish(
                _checked_end(utterance, message.end_sample),
                skip_silence=self._options.skip_silence,
                transcribe=self._options.enable_source_transcript,
            )
        else:
            encoded = utterance.encode(
                skip_silence=self._options.skip_silence,
                transcribe=self._options.enable_partial_transcript,
            )
        self.revision_count += 1
        states_id = encoded.states.states_id
        states_id.utterance, states_id.revision = self._utterance_index, self._revision
        return pb.EncodeResponse(encoded=encoded)

    def _add(self, utterance: Utterance | TextUtterance, data: bytes) -> None:
        added = frame_count(utterance.audio_format, data)
        rate_hz = utterance.audio_format.sample_rate_hz
        allowed = self._max_utterance_ms * rate_hz // 1000
        total = utterance.received_count + added
        if total > allowed:
            raise SessionTooLongError(
                f"the utterance would be {-(-total * 1000 // rate_hz)} ms long; "
                f"allowed: {self._max_utterance_ms} ms",
                allowed_ms=str(self._max_utterance_ms),
            )
        utterance.add(data)
        self.sample_count += added


def _checked_end(utterance: Utterance | TextUtterance, end_sample: int) -> int:
    if not utterance.start_sample <= end_sample <= utterance.end_sample:
        raise InvalidFieldError(
            "finish.end_sample",
            end_sample,
            f"{utterance.start_sample} (the utterance's start) to {utterance.end_sample} "
            "(the end of the audio received)",
        )
    return end_sample
