"""`DecoderService` on the wire; the session decides, the engine's thread computes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import decoder_service_pb2_grpc as pb_grpc
from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.generation import Outbox
from earvoice.decoder.session import DecodeSession
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.strategy import ServedModel
from earvoice.decoder.stream import DecodeStream
from earvoice.runtime.errors import NotReadyError
from earvoice.runtime.interceptor import ResponseWriter
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import Tracer

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["DecoderService"].full_name
MAX_ENDING_S = 1.0
"""Longest part of the grace that is reserved for ending the sessions that are left."""

Context = grpc.aio.ServicerContext[Any, Any]


class DecoderService(pb_grpc.DecoderServiceServicer):
    def __init__(self, settings: DecoderSettings, tracer: Tracer | None = None) -> None:
        self._settings = settings
        self._tracer = tracer
        self._served: tuple[ServedModel, DecoderEngine] | None = None
        self.sessions = SessionLimit(settings.session_limit)
        self._streams: set[DecodeStream] = set()

    def serve(self, model: ServedModel, engine: DecoderEngine) -> None:
        """Take sessions from now on; before that, every call is refused with NOT_READY."""
        self._served = model, engine

    async def DescribeModel(  # noqa: N802 - the proto's name
        self, request: pb.DecoderServiceDescribeModelRequest, context: Context
    ) -> pb.DecoderServiceDescribeModelResponse:
        del request, context
        model, _ = self._ready()
        return pb.DecoderServiceDescribeModelResponse(model=model.description)

    async def Decode(  # noqa: N802 - the proto's name
        self, request_iterator: AsyncIterator[pb.DecodeRequest], context: Context
    ) -> AsyncIterator[pb.DecodeResponse]:
        """Serve one session.

        Answers are written to the context, not yielded: a cancelled call ends here and not
        wherever a suspended generator is collected.
        """
        model, engine = self._ready()
        self.sessions.check()
        # The session counts against the limit once its first request has come.
        first = await anext(request_iterator, None)
        settings = self._settings

        writer = ResponseWriter(context, settings.write_timeout_ms / 1000)
        with self.sessions.admit():
            outbox = Outbox(settings.outbox_events, engine.wake)
            session = DecodeSession(
                model,
                engine,
                outbox,
                max_states=settings.max_states,
                max_tokens=min(settings.max_tokens, model.max_tokens or settings.max_tokens),
            )
            stream = DecodeStream(session, outbox, model, self._tracer)
            self._streams.add(stream)
            try:
                await stream.run(first, request_iterator, writer.write)
            finally:
                self._streams.remove(stream)
                writer.close()
        nothing: tuple[pb.DecodeResponse, ...] = ()
        for answer in nothing:
            yield answer

    async def drain(self, grace_s: float) -> None:
        """Refuse new sessions, let the others go on for the grace, then end those that are left."""
        ending_s = min(MAX_ENDING_S, grace_s / 4)
        try:
            async with asyncio.timeout(grace_s - ending_s):
                await self.sessions.drain()
        except TimeoutError:
            for stream in self._streams:
                stream.end(NotReadyError("this server is draining", retry_after_ms=RETRY_AFTER_MS))
            await self.sessions.drain()

    def _ready(self) -> tuple[ServedModel, DecoderEngine]:
        if self._served is None:
            raise NotReadyError("the model is still being loaded", retry_after_ms=RETRY_AFTER_MS)
        return self._served
