"""`EncoderService` on the wire; the session decides, the engine's thread computes."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import encoder_service_pb2_grpc as pb_grpc
from earvoice.encoder.network import Network
from earvoice.encoder.session import EncodeSession
from earvoice.encoder.settings import EncoderSettings
from earvoice.encoder.text import TextNetwork
from earvoice.runtime.engine import EngineThread
from earvoice.runtime.errors import NotReadyError
from earvoice.runtime.log import session_log, trace_id_of
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit
from earvoice.telemetry.trace_context import new_child, sampled_parent

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import Tracer

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["EncoderService"].full_name
BATCH_SIZE = 1
"""Sessions in one computation: in a batch, a short utterance would wait for a long one."""

Context = grpc.aio.ServicerContext[Any, Any]

_LOG = logging.getLogger("earvoice.encoder")


class EncoderService(pb_grpc.EncoderServiceServicer):
    def __init__(
        self, settings: EncoderSettings, engine: EngineThread, tracer: Tracer | None = None
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._tracer = tracer
        self._network: Network | TextNetwork | None = None
        self.sessions = SessionLimit(settings.session_limit)

    def serve(self, network: Network | TextNetwork) -> None:
        """Take sessions from now on; before that, every call is refused as not ready."""
        self._network = network

    async def drain(self, grace_s: float) -> None:
        """Refuse new sessions, and return when the last one has ended."""
        del grace_s
        await self.sessions.drain()

    async def DescribeModel(  # noqa: N802 - the proto's name
        self, request: pb.EncoderServiceDescribeModelRequest, context: Context
    ) -> pb.EncoderServiceDescribeModelResponse:
        del request, context
        return pb.EncoderServiceDescribeModelResponse(model=self._ready().description)

    async def Encode(  # noqa: N802 - the proto's name
        self, request_iterator: AsyncIterator[pb.EncodeRequest], context: Context
    ) -> AsyncIterator[pb.EncodeResponse]:
        """Run one session: one answer per request, in order."""
        del context
        network = self._ready()
        self.sessions.check()
        # The session counts against the limit once its first request has come.
        request = await anext(request_iterator, None)
        session = EncodeSession(network, self._settings.max_utterance_ms)
        trace_id, compute_ms = "", 0.0

        def describe(_status: str) -> dict[str, object]:
            return {
                "session_id": session.session_id,
                "trace_id": trace_id,
                "audio_s": round(session.audio_seconds, 3),
                "revisions": session.revision_count,
                "compute_ms": round(compute_ms, 1),
            }

        with self.sessions.admit(), session_log(_LOG, describe):
            while request is not None:
                began_s = time.perf_counter()
                traceparent = request.trace_context.traceparent
                # Each segment is a trace of its own; the first message has the session's.
                trace_id = trace_id or trace_id_of(traceparent)
                response, waited_ms, computed_ms = await self._engine.run(
                    partial(session.apply, request)
                )
                compute_ms += computed_ms
                timings = response.timings
                timings.queue_ms, timings.compute_ms = waited_ms, computed_ms
                self._trace(traceparent, began_s, response)
                timings.batch_size = BATCH_SIZE
                timings.elapsed_ms = (time.perf_counter() - began_s) * 1000
                yield response
                request = await anext(request_iterator, None)

    def _ready(self) -> Network | TextNetwork:
        if self._network is None:
            raise NotReadyError("the model is still being loaded", retry_after_ms=RETRY_AFTER_MS)
        return self._network

    def _trace(self, traceparent: str, began_s: float, response: pb.EncodeResponse) -> None:
        """Record a revision's spans, if its request names a sampled trace."""
        if self._tracer is None or not response.HasField("encoded"):
            return
        parent = sampled_parent(traceparent)
        if parent is None:
            return
        taken_s = began_s + response.timings.queue_ms / 1000
        done_s = taken_s + response.timings.compute_ms / 1000
        batch = self._tracer.batch()
        batch.add("encoder.queue", new_child(parent), parent, (began_s, taken_s), {})
        attributes = {
            "earvoice.batch.size": BATCH_SIZE,
            "earvoice.engine.compute_ms": response.timings.compute_ms,
            "earvoice.states.revision": response.encoded.states.states_id.revision,
        }
        compute_s = (taken_s, done_s)
        batch.add("encoder.compute", new_child(parent), parent, compute_s, attributes)
        self._tracer.put(batch.spans)
