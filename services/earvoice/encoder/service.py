"""`EncoderService` on the wire; the session decides, the engine's thread computes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import encoder_service_pb2_grpc, types_pb2
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
)
from earvoice.encoder.network import Network
from earvoice.encoder.request_trace import RequestTrace
from earvoice.encoder.session import EncodeSession
from earvoice.encoder.settings import EncoderSettings
from earvoice.runtime.errors import EarvoiceError, IdleError, InvalidFieldError, NotReadyError
from earvoice.runtime.executor import Computation, EngineThread
from earvoice.runtime.log import trace_id_of
from earvoice.runtime.model_description import model_description
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["EncoderService"].full_name
BATCH_SIZE = 1
"""Sessions in one computation: the short utterance would wait for the long one."""

LOGGED_ID_LENGTH = 128
"""Characters of a caller's session id that reach the log."""

Context = grpc.aio.ServicerContext[Any, Any]

_LOG = logging.getLogger("earvoice.encoder")


class EncoderService(encoder_service_pb2_grpc.EncoderServiceServicer):
    """The servicer.

    Args:
        settings: limits.
        engine: the thread that computes for all sessions.
        limit: how many sessions may run.
        trace: makes spans of traced requests.
    """

    def __init__(
        self,
        settings: EncoderSettings,
        engine: EngineThread,
        limit: SessionLimit,
        trace: RequestTrace,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._limit = limit
        self._trace = trace
        self._network: Network | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service's methods."""
        encoder_service_pb2_grpc.add_EncoderServiceServicer_to_server(self, server)

    def serve(self, network: Network) -> None:
        """Answer with this model from now on; before, every call is refused as not ready."""
        self._network = network

    async def DescribeModel(  # noqa: N802 - the proto's name
        self,
        request: pb.EncoderServiceDescribeModelRequest,  # noqa: ARG002 - it has no fields
        context: Context,  # noqa: ARG002 - statuses are raised
    ) -> pb.EncoderServiceDescribeModelResponse:
        """Say which model is served.

        Raises:
            NotReadyError: none yet.
        """
        return pb.EncoderServiceDescribeModelResponse(model=model_description(self._ready().facts))

    async def Encode(  # noqa: N802 - the proto's name
        self,
        request_iterator: AsyncIterator[pb.EncodeRequest],
        context: Context,  # noqa: ARG002 - statuses are raised
    ) -> AsyncIterator[pb.EncodeResponse]:
        """Run one session: one answer a request, in order.

        Raises:
            EarvoiceError: see `EncodeSession.apply`; also at the session limit, while draining
                and when no request came for too long.
        """
        with self._limit.admit():
            session = EncodeSession(self._ready(), self._settings.max_utterance_ms)
            record = _SessionRecord()
            try:
                async for request in self._until_idle(request_iterator):
                    began = time.perf_counter()
                    record.note(request)
                    computed = await self._engine.run(partial(session.apply, _command(request)))
                    record.compute_ms += computed.compute_ms
                    self._trace.note(request.trace_context.traceparent, began, computed)
                    yield _response(computed, began)
                record.status = "OK"
            except EarvoiceError as error:
                record.status = error.reason
                raise
            except (asyncio.CancelledError, GeneratorExit):
                record.status = "CANCELLED"
                raise
            finally:
                record.log(session)

    def _ready(self) -> Network:
        if self._network is None:
            raise NotReadyError("the model is still being loaded", retry_after_ms=RETRY_AFTER_MS)
        return self._network

    async def _until_idle(
        self, requests: AsyncIterator[pb.EncodeRequest]
    ) -> AsyncIterator[pb.EncodeRequest]:
        idle_timeout_ms = self._settings.idle_timeout_ms
        while True:
            try:
                async with asyncio.timeout(idle_timeout_ms / 1000):
                    request = await anext(requests)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise IdleError(f"no request came for {idle_timeout_ms} ms") from error
            yield request


class _SessionRecord:
    """What a session's log line says; never audio, never text."""

    def __init__(self) -> None:
        self.status = "INTERNAL"
        self.compute_ms = 0.0
        self._session_id = ""
        self._trace_id = ""

    def note(self, request: pb.EncodeRequest) -> None:
        """Take what a request says about the session."""
        self._session_id = request.open.session_id[:LOGGED_ID_LENGTH] or self._session_id
        # Each segment is a trace of its own; the first message has the session's.
        self._trace_id = self._trace_id or trace_id_of(request.trace_context.traceparent)

    def log(self, session: EncodeSession) -> None:
        """Write the line."""
        _LOG.info(
            "session ended",
            extra={
                "session_id": self._session_id,
                "trace_id": self._trace_id,
                "status": self.status,
                "audio_s": round(session.audio_seconds, 3),
                "revisions": session.revision_count,
                "compute_ms": round(self.compute_ms, 1),
            },
        )


def _command(request: pb.EncodeRequest) -> Command:
    kind = request.WhichOneof("command")
    if kind == "open":
        return _open(request.open)
    if kind == "audio":
        return Audio(request.audio.revision, request.audio.data)
    if kind == "finish":
        finish = request.finish
        return Finish(finish.revision, finish.data, finish.end_sample)
    if kind == "reset":
        return Reset(request.reset.utterance, request.reset.start_sample)
    raise InvalidFieldError("command", "none", "open, audio, finish or reset")


def _open(message: pb.EncodeOpen) -> Open:
    wire = message.audio_format
    return Open(
        audio_format=AudioFormat(wire.encoding, wire.sample_rate_hertz, wire.channel_count or 1),
        model_hash=message.model_hash,
        enable_source_transcript=message.enable_source_transcript,
        skip_silence=message.skip_silence,
    )


def _response(computed: Computation[Answer], began: float) -> pb.EncodeResponse:
    response = pb.EncodeResponse()
    answer = computed.value
    if isinstance(answer, Opened):
        response.opened.model.CopyFrom(model_description(answer.facts))
    elif isinstance(answer, Encoded):
        fill_encoded(response.encoded, answer)
    else:
        response.reset_done.utterance = answer.utterance
    timings = response.timings
    timings.queue_ms = computed.queue_ms
    timings.compute_ms = computed.compute_ms
    timings.batch_size = BATCH_SIZE
    timings.elapsed_ms = (time.perf_counter() - began) * 1000
    return response


def fill_encoded(message: pb.Encoded, answer: Encoded) -> None:
    """Write a revision as the message that tells of it."""
    hearing = answer.hearing
    encoding = hearing.encoding
    states = message.states
    states.states_id.utterance = answer.utterance
    states.states_id.revision = answer.revision
    states.state_count = len(encoding.run_lengths)
    states.dimension = hearing.dimension
    states.element_type = types_pb2.ELEMENT_TYPE_FLOAT32
    states.data = encoding.states
    states.span_end_samples.extend(hearing.span_end_samples)
    states.final = answer.final
    evidence = message.evidence
    evidence.ctc_labels.extend(encoding.labels)
    evidence.blank_label = hearing.blank
    evidence.complete_word_count = hearing.words.complete_count
    evidence.has_partial_word = hearing.words.has_partial
    evidence.label_count = len(hearing.words.labels)
    evidence.last_label_end_sample = hearing.last_label_end_sample
    evidence.source_transcript = answer.source_transcript
    evidence.frame_count = hearing.frame_count
    heard = hearing.voice_activity
    activity = evidence.voice_activity
    activity.has_speech = heard.has_speech
    activity.speech_start_sample = heard.speech_start_sample
    activity.speech_end_sample = heard.speech_end_sample
    for start, end in heard.pauses:
        activity.pauses.add(start_sample=start, end_sample=end)
