"""The gRPC face of the decoder: messages to commands, events to messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.api.v1.decoder_service_pb2_grpc import (
    DecoderServiceServicer,
    add_DecoderServiceServicer_to_server,
)
from earvoice.decoder.answer import answer_of
from earvoice.decoder.command import Command
from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.event import Event
from earvoice.decoder.generation_trace import GenerationTrace
from earvoice.decoder.model import ServedModel
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.request import command_of
from earvoice.decoder.session import DecodeSession, SessionBounds
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.stream import DecodeStream, Patience
from earvoice.runtime.errors import NotReadyError
from earvoice.runtime.log import trace_id_of
from earvoice.runtime.model_description import model_description
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit

SERVICE_NAME = decoder_pb.DESCRIPTOR.services_by_name["DecoderService"].full_name
_MAX_FAREWELL_S = 1.0


@dataclass(frozen=True)
class _Served:
    model: ServedModel
    description: types_pb2.ModelDescription
    engine: DecoderEngine[Any]


class DecoderService(DecoderServiceServicer):
    """Serves one model to many sessions.

    Args:
        settings: limits.
        trace: makes spans of traced generations.

    Attributes:
        sessions: how many run.
    """

    def __init__(self, settings: DecoderSettings, trace: GenerationTrace) -> None:
        self._settings = settings
        self._trace = trace
        self._served: _Served | None = None
        self.sessions = SessionLimit(settings.session_limit)
        self._streams: set[DecodeStream] = set()

    def serve(self, model: ServedModel, engine: DecoderEngine[Any]) -> None:
        """Take sessions from now on; before, every call is refused with NOT_READY.

        Args:
            model: the model served.
            engine: computes it; started and closed by the caller.
        """
        self._served = _Served(model, model_description(model.facts), engine)

    async def DescribeModel(  # noqa: N802 - the name of the method on the wire
        self,
        request: decoder_pb.DecoderServiceDescribeModelRequest,  # noqa: ARG002 - it has no fields
        context: Any,  # noqa: ARG002 - the interface of grpc
    ) -> decoder_pb.DecoderServiceDescribeModelResponse:
        """Say which model is served."""
        served = self._require_served()
        return decoder_pb.DecoderServiceDescribeModelResponse(model=served.description)

    async def Decode(  # noqa: N802 - the name of the method on the wire
        self, requests: AsyncIterator[decoder_pb.DecodeRequest], context: Any
    ) -> AsyncIterator[decoder_pb.DecodeResponse]:
        """Serve one session.

        Answers are written to the context, not yielded: so a write can be given up in time, and
        a cancelled call ends here and not wherever a suspended generator is collected.

        Raises:
            EarvoiceError: the call's status.
        """
        served = self._require_served()

        async def send(event: Event) -> None:
            await context.write(answer_of(event, served.model.tokens, served.description))

        with self.sessions.admit():
            outbox = Outbox(self._settings.outbox_events, served.engine.wake)
            max_tokens = min(
                self._settings.max_tokens, served.model.max_tokens or self._settings.max_tokens
            )
            bounds = SessionBounds(self._settings.max_states, max_tokens)
            session = DecodeSession(served.model, bounds, served.engine, outbox)
            stream = DecodeStream(session, outbox, self._patience, self._trace)
            self._streams.add(stream)
            try:
                await stream.run(_commands(requests, stream), send)
            finally:
                self._streams.remove(stream)
        nothing: tuple[decoder_pb.DecodeResponse, ...] = ()
        for answer in nothing:
            yield answer

    async def drain(self, grace_s: float) -> None:
        """Refuse new sessions, let the others go on for the grace, and end what is left then.

        Args:
            grace_s: seconds until every session must have ended.
        """
        farewell_s = min(_MAX_FAREWELL_S, grace_s / 4)
        try:
            async with asyncio.timeout(grace_s - farewell_s):
                await self.sessions.drain()
        except TimeoutError:
            for stream in self._streams:
                stream.end(NotReadyError("this server is draining", retry_after_ms=RETRY_AFTER_MS))
            await self.sessions.drain()

    @property
    def _patience(self) -> Patience:
        return Patience(
            self._settings.idle_timeout_ms / 1000, self._settings.write_timeout_ms / 1000
        )

    def _require_served(self) -> _Served:
        if self._served is None:
            raise NotReadyError("the model is being loaded", retry_after_ms=RETRY_AFTER_MS)
        return self._served


def register(service: DecoderService, server: grpc.aio.Server) -> None:
    """Make a server answer for the service."""
    add_DecoderServiceServicer_to_server(service, server)


async def _commands(
    requests: AsyncIterator[decoder_pb.DecodeRequest], stream: DecodeStream
) -> AsyncIterator[Command]:
    async for request in requests:
        if not stream.trace_id:
            stream.trace_id = trace_id_of(request.trace_context.traceparent)
        yield command_of(request, time.monotonic())
