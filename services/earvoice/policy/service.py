"""The public API."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.metadata import version
from typing import Any

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.api.v1 import types_pb2
from earvoice.policy.backends import Backends
from earvoice.policy.decisions.factory import POLICY_NAMES
from earvoice.policy.observing.session_trace import SessionFacts
from earvoice.policy.observing.session_watch import SessionWatch
from earvoice.policy.resume.snapshot import SessionSnapshot, first_snapshot
from earvoice.policy.resume.token import Bearer, ResumedSession, TokenMint
from earvoice.policy.settings import PolicySettings
from earvoice.policy.stream import TranslationStream
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.policy.wire.request import RequestReader
from earvoice.policy.wire.response import ResponseWriter
from earvoice.runtime.errors import NotReadyError, find_error
from earvoice.runtime.identity import current_tenant
from earvoice.runtime.log import trace_id_of
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit
from earvoice.telemetry.service_telemetry import ServiceTelemetry

SERVICE_NAME = public_pb.DESCRIPTOR.services_by_name["SpeechTranslationService"].full_name

MAX_FAREWELL_S = 1.0
"""Longest part of the grace that is kept for ending what is left."""

_LOG = logging.getLogger("earvoice.policy.service")

Context = grpc.aio.ServicerContext[Any, Any]


class SpeechTranslationService(public_grpc.SpeechTranslationServiceServicer):
    """Serves streams.

    Args:
        settings: the service's limits.
        backends: the encoder and the decoder.
        sessions: how many streams at once.
        telemetry: hears of every session.
        mint: of resume tokens.
    """

    def __init__(
        self,
        settings: PolicySettings,
        backends: Backends,
        sessions: SessionLimit,
        telemetry: ServiceTelemetry,
        mint: TokenMint,
    ) -> None:
        self._mint = mint
        self._settings = settings
        self._backends = backends
        self._sessions = sessions
        self._telemetry = telemetry
        self._streams: set[TranslationStream] = set()
        self._leaving_grace_s: float | None = None

    async def StreamingTranslate(  # noqa: N802 - the rpc's name
        self,
        request_iterator: AsyncIterator[public_pb.StreamingTranslateRequest],
        context: Context,
    ) -> AsyncIterator[public_pb.StreamingTranslateResponse]:
        """Translate one stream."""
        del context
        with self._sessions.admit():
            reader = RequestReader(request_iterator, self._settings.idle_timeout_ms / 1000)
            self._backends.fleet.choose()
            config = await reader.config()
            resumed = self._resumed(config)
            model = resumed.bearer.model if resumed else self._backends.fleet.choose(config.model)
            start = resumed.snapshot if resumed else first_snapshot(stream_options(config, model))
            options = start.options
            session_id = uuid.uuid4().hex
            facts = _facts(session_id, config, options, model, resumed)
            watch = SessionWatch(self._telemetry, facts, time.perf_counter)
            writer = self._writer(facts, model, watch, resumed)
            async with self._backends.open(
                options, model.hash, session_id, watch.messages
            ) as backends:
                snapshot = resumed.snapshot if resumed else None
                stream = TranslationStream(options, self._settings, *backends, watch, snapshot)
                with _Ended(facts, stream, watch), self._listed(stream):
                    yield writer.started(_started(start, model, session_id))
                    if self._leaving_grace_s is not None:
                        await stream.leave(self._leaving_grace_s)
                    messages = reader.messages(
                        options, model, start.start_sample, start.decided_sample
                    )
                    async with aclosing(stream.events(messages)) as events:
                        async for event in events:
                            yield writer.response(event)

    async def ListModels(  # noqa: N802 - the rpc's name
        self, request: public_pb.ListModelsRequest, context: Context
    ) -> public_pb.ListModelsResponse:
        """Say what can be asked for."""
        del request, context
        self._backends.fleet.choose()
        return public_pb.ListModelsResponse(
            models=self._backends.fleet.models, policies=POLICY_NAMES, max_target_languages=1
        )

    async def drain(self, grace_s: float) -> None:
        """Refuse new streams, tell the others to leave, and end what is left after the grace.

        Args:
            grace_s: seconds until every stream must have ended.
        """
        self._leaving_grace_s = grace_s
        async with asyncio.TaskGroup() as group:
            drained = group.create_task(self._sessions.drain())
            for stream in tuple(self._streams):
                await stream.leave(grace_s)
            farewell_s = min(MAX_FAREWELL_S, grace_s / 4)
            await asyncio.wait([drained], timeout=grace_s - farewell_s)
            for stream in tuple(self._streams):
                await stream.end(
                    NotReadyError("this server is stopping", retry_after_ms=RETRY_AFTER_MS)
                )

    def _resumed(self, config: public_pb.StreamingConfig) -> ResumedSession | None:
        """Return the session that a config asks to go on with, if it does.

        Raises:
            InvalidResumeTokenError: its token is not to be taken.
        """
        if not config.resume_token:
            return None
        return self._mint.take(
            config.resume_token,
            current_tenant(),
            lambda model_hash: self._backends.fleet.choose(model_hash=model_hash),
        )

    def _writer(
        self,
        facts: SessionFacts,
        model: types_pb2.ModelDescription,
        watch: SessionWatch,
        resumed: ResumedSession | None,
    ) -> ResponseWriter:
        bearer = Bearer(current_tenant(), model, facts.session_id, watch.messages.encoder)

        def make_token(snapshot: SessionSnapshot, seq: int) -> bytes:
            return self._mint.make(snapshot, seq, bearer)

        if resumed is None:
            return ResponseWriter(facts.options, make_token)
        self._telemetry.meters.count("earvoice.sessions.resumed", 1)
        _LOG.info(
            "session resumed",
            extra={"session_id": facts.session_id, "from_session": resumed.bearer.session_id},
        )
        return ResponseWriter(facts.options, make_token, resumed.seq, resumed.token)

    def _listed(self, stream: TranslationStream) -> _Listed:
        return _Listed(self._streams, stream)


class _Listed:
    """Keeps a stream in the set of running ones."""

    def __init__(self, streams: set[TranslationStream], stream: TranslationStream) -> None:
        self._streams = streams
        self._stream = stream

    def __enter__(self) -> None:
        self._streams.add(self._stream)

    def __exit__(self, *_: object) -> None:
        self._streams.discard(self._stream)


class _Ended:
    """Writes one line when a session ends, however it ends, and tells who watches it."""

    def __init__(self, facts: SessionFacts, stream: TranslationStream, watch: SessionWatch) -> None:
        self._session_id = facts.session_id
        self._trace_id = trace_id_of(watch.messages.encoder)
        self._stream = stream
        self._watch = watch

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        ours = find_error(error)
        end = "OK" if kind is None else ours.reason if ours else "CANCELLED"
        if isinstance(error, Exception) and ours is None:
            end = "INTERNAL"
        totals = self._stream.totals
        self._watch.close(end, totals, "" if end in ("OK", "CANCELLED") else end)
        _LOG.info(
            "session ended",
            extra={
                "session_id": self._session_id,
                "trace_id": self._trace_id,
                "status": end,
                "words": totals.word_count,
                "segments": totals.segment_count,
                "utterances": totals.utterance_count,
                "computation_ms": round(totals.computation_ms, 1),
            },
        )


def _facts(
    session_id: str,
    config: public_pb.StreamingConfig,
    options: StreamOptions,
    model: types_pb2.ModelDescription,
    resumed: ResumedSession | None,
) -> SessionFacts:
    traceparent = config.trace_context.traceparent
    if not traceparent and resumed is not None:
        traceparent = resumed.bearer.traceparent
    return SessionFacts(
        session_id, traceparent, options, model.name, model.hash, model.source_language_code
    )


def _started(
    start: SessionSnapshot, model: types_pb2.ModelDescription, session_id: str
) -> public_pb.SessionStarted:
    return public_pb.SessionStarted(
        session_id=session_id,
        config=effective_config(start.options, model),
        model=model,
        server_version=version("earvoice"),
        elapsed_clock=public_pb.ELAPSED_CLOCK_LIVE
        if start.options.merges_segments
        else public_pb.ELAPSED_CLOCK_TRUE,
        next_sample=start.start_sample,
    )
