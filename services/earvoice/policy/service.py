"""The public API."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import speech_translation_service_pb2_grpc as public_grpc
from earvoice.api.v1 import types_pb2
from earvoice.policies.registry import POLICIES, Policies
from earvoice.policy.backends import Backends
from earvoice.policy.event import SessionSnapshot
from earvoice.policy.observing import SessionWatch
from earvoice.policy.resume import ResumeTokens, TokenOwner
from earvoice.policy.settings import PolicySettings
from earvoice.policy.stream import TranslationStream, read_config, read_messages
from earvoice.policy.wire.config import effective_config, stream_options
from earvoice.policy.wire.events import ResponseWriter
from earvoice.runtime.authentication import current_tenant
from earvoice.runtime.errors import NotReadyError
from earvoice.runtime.log import session_log, trace_id_of
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit
from earvoice.telemetry.service_telemetry import ServiceTelemetry
from earvoice.telemetry.trace_context import read_traceparent, traceparent_of

# Read once: it is in a file, and running out of descriptors must not end a session.
SERVER_VERSION = version("earvoice")

SERVICE_NAME = public_pb.DESCRIPTOR.services_by_name["SpeechTranslationService"].full_name

MAX_ENDING_S = 1.0
"""Longest part of the grace that is reserved for ending the streams that are left."""

_LOG = logging.getLogger("earvoice.policy.service")

Context = grpc.aio.ServicerContext[Any, Any]


class SpeechTranslationService(public_grpc.SpeechTranslationServiceServicer):
    def __init__(
        self,
        settings: PolicySettings,
        backends: Backends,
        sessions: SessionLimit,
        telemetry: ServiceTelemetry,
        policies: Policies = POLICIES,
    ) -> None:
        self._policies = policies
        self._tokens = ResumeTokens.of(settings, policies)
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
        del context
        self._sessions.check()
        # Take a place only once the config is known.
        config = await read_config(request_iterator)
        with self._sessions.admit():
            self._check_backends()
            resumed, seq, before = None, 0, None
            if config.resume_token:
                resumed, seq, before = self._tokens.take(
                    config.resume_token,
                    current_tenant(),
                    lambda model_hash: self._backends.choose_model(model_hash=model_hash),
                )
            model = before.model if before else self._backends.choose_model(config.model)
            start = resumed or SessionSnapshot(stream_options(config, model, self._policies))
            options, session_id = start.options, uuid.uuid4().hex
            # Written anew, because the caller's may be of any length.
            caller = read_traceparent(config.trace_context.traceparent)
            given = traceparent_of(caller) if caller else ""
            traceparent = given or (before.traceparent if before else "")
            watch = SessionWatch(
                self._telemetry, session_id, traceparent, options, model, time.perf_counter
            )
            owner = TokenOwner(current_tenant(), model, session_id, watch.traceparents["encoder"])
            if before is not None:
                self._telemetry.meters.count("earvoice.sessions.resumed", 1)
                told = {"session_id": session_id, "from_session": before.session_id}
                _LOG.info("session resumed", extra=told)
            make_token = partial(self._tokens.make, owner=owner)
            writer = ResponseWriter(options, make_token, seq, config.resume_token)
            async with self._backends.open(
                options, model.hash, session_id, watch.traceparents
            ) as backends:
                stream = TranslationStream(options, self._settings, *backends, watch, resumed)
                with self._running(stream, owner, watch):
                    yield writer.started(_started(start, model, session_id))
                    if self._leaving_grace_s is not None:
                        await stream.leave(self._leaving_grace_s)
                    messages = read_messages(request_iterator, start, model, self._policies)
                    async with aclosing(stream.events(messages)) as events:
                        async for event in events:
                            yield writer.response(event)

    async def ListModels(  # noqa: N802 - the rpc's name
        self, request: public_pb.ListModelsRequest, context: Context
    ) -> public_pb.ListModelsResponse:
        del request, context
        self._backends.choose_model()
        return public_pb.ListModelsResponse(
            models=self._backends.models, policies=self._policies, max_target_languages=1
        )

    def _check_backends(self) -> None:
        """Refuse a session for which there are no backends yet, before its token is looked at."""
        try:
            self._backends.choose_model()
        except NotReadyError as error:
            self._backends.refused[error.reason] += 1
            raise

    async def drain(self, grace_s: float) -> None:
        """Refuse new streams, ask the running ones to leave, and end those left after the grace."""
        self._leaving_grace_s = grace_s
        async with asyncio.TaskGroup() as group:
            drained = group.create_task(self._sessions.drain())
            for stream in tuple(self._streams):
                await stream.leave(grace_s)
            farewell_s = min(MAX_ENDING_S, grace_s / 4)
            await asyncio.wait([drained], timeout=grace_s - farewell_s)
            for stream in tuple(self._streams):
                await stream.end(
                    NotReadyError("this server is stopping", retry_after_ms=RETRY_AFTER_MS)
                )

    @contextmanager
    def _running(
        self, stream: TranslationStream, owner: TokenOwner, watch: SessionWatch
    ) -> Iterator[None]:
        """Track a running stream; when it ends, however it ends, log it and close its watch."""
        trace_id = trace_id_of(owner.traceparent)

        def describe(status: str) -> dict[str, object]:
            totals = stream.totals
            watch.close(status, totals, "" if status in ("OK", "CANCELLED") else status)
            return {
                "session_id": owner.session_id,
                "trace_id": trace_id,
                "words": totals.word_count,
                "segments": totals.segment_count,
                "utterances": totals.utterance_count,
                "computation_ms": round(totals.computation_ms, 1),
            }

        self._streams.add(stream)
        try:
            with session_log(_LOG, describe):
                yield
        finally:
            self._streams.discard(stream)


def _started(
    start: SessionSnapshot, model: types_pb2.ModelDescription, session_id: str
) -> public_pb.SessionStarted:
    return public_pb.SessionStarted(
        session_id=session_id,
        config=effective_config(start.options, model),
        model=model,
        server_version=SERVER_VERSION,
        elapsed_clock=public_pb.ELAPSED_CLOCK_LIVE
        if start.options.merges_segments
        else public_pb.ELAPSED_CLOCK_TRUE,
        next_sample=start.start_sample,
    )
