"""One session's life: requests in, answers out, one log line at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.decoder.generation import EndReason, Event, Outbox
from earvoice.decoder.session import DecodeSession
from earvoice.decoder.strategy import PredictedToken, ServedModel, TokenTable
from earvoice.runtime.errors import EarvoiceError, IdleError, NotReadyError
from earvoice.runtime.log import session_log, trace_id_of
from earvoice.runtime.session_limit import RETRY_AFTER_MS
from earvoice.telemetry.trace_context import new_child, sampled_parent

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import Tracer

_LOG = logging.getLogger("earvoice.decoder")

Send = Callable[[pb.DecodeResponse], Awaitable[None]]


class DecodeStream:
    """Moves requests to the session and answers to the caller."""

    def __init__(
        self,
        session: DecodeSession,
        outbox: Outbox,
        model: ServedModel,
        tracer: Tracer | None = None,
    ) -> None:
        self._session = session
        self._outbox = outbox
        self._model = model
        self._tracer = tracer
        self._totals: Counter[str] = Counter()
        self._compute_ms = 0.0
        self._trace_id = ""

    async def run(
        self,
        first: pb.DecodeRequest | None,
        requests: AsyncIterator[pb.DecodeRequest],
        send: Send,
    ) -> None:
        """Serve until the requests and the last generation have ended.

        `first` may be None. The limit on waiting for a request does not hold while a generation
        runs.
        """
        with session_log(_LOG, self._describe):
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._read(first, requests, send))
                    await self._write(send)
            finally:
                self._session.close()
                await self._outbox.settled()

    def end(self, error: Exception) -> None:
        self._outbox.fail(error)

    async def _read(
        self,
        request: pb.DecodeRequest | None,
        requests: AsyncIterator[pb.DecodeRequest],
        send: Send,
    ) -> None:
        try:
            while request is not None:
                read_at_s = time.monotonic()
                traceparent = request.trace_context.traceparent
                self._trace_id = self._trace_id or trace_id_of(traceparent)
                if request.WhichOneof("command") == "generate":
                    await self._outbox.room()
                self._session.apply(request, read_at_s)
                if request.HasField("open"):
                    # Nothing else is written before: there is no generation yet.
                    description = self._model.description
                    await send(pb.DecodeResponse(opened=pb.DecodeOpened(model=description)))
                request = await self._next(requests)
            self._outbox.finish()
        except EarvoiceError as error:
            self._outbox.fail(error)

    async def _next(self, requests: AsyncIterator[pb.DecodeRequest]) -> pb.DecodeRequest | None:
        while True:
            try:
                return await anext(requests, None)
            except IdleError:
                if not self._outbox.generating:
                    raise

    async def _write(self, send: Send) -> None:
        while (event := await self._outbox.take()) is not None:
            generation = event.generation
            if generation.end_reason is EndReason.CLOSED and event.progress is None:
                raise NotReadyError("this server is stopping", retry_after_ms=RETRY_AFTER_MS)
            await send(response_of(event, self._model.tokens))
            if event.progress is None:
                self._totals["steps"] += generation.step_count
                self._totals["draft_accepted"] += generation.draft_accepted_count
                self._totals["near_ties"] += generation.near_tie_count
                self._compute_ms += generation.compute_ms
                if self._tracer is not None:
                    trace_generation(self._tracer, event)
                if generation.failure is not None:
                    raise generation.failure

    def _describe(self, _status: str) -> dict[str, object]:
        return {
            "session_id": self._session.session_id,
            "trace_id": self._trace_id,
            "generations": self._session.generation_count,
            "steps": self._totals["steps"],
            "draft_accepted": self._totals["draft_accepted"],
            "near_ties": self._totals["near_ties"],
            "compute_ms": round(self._compute_ms, 1),
        }


def response_of(event: Event, tokens: TokenTable) -> pb.DecodeResponse:
    """Return the message for an event, with the time elapsed until now."""
    generation, progress = event.generation, event.progress
    # Filled in place: putting a finished message into another one would copy it.
    response = pb.DecodeResponse()
    told: pb.Steps | pb.Beam | pb.GenerationDone
    if progress is None:
        told = response.done
        told.reason = pb.GenerationDone.Reason.ValueType(generation.end_reason or 0)
        told.step_count = generation.step_count
        told.draft_accepted_count = generation.draft_accepted_count
        told.near_tie_count = generation.near_tie_count
    else:
        if progress.beam:
            told = response.beam
            for item in progress.beam:
                hypothesis = told.hypotheses.add(score=item.score)
                _add_steps(hypothesis.steps, item.tokens, event.first_index, tokens)
        else:
            told = response.steps
            _add_steps(told.steps, progress.tokens, event.first_index, tokens)
        for row in progress.prefix_attention:
            told.prefix_attention.add(weights=row)
        if event.first_index == generation.prefix_length:
            _add_steps(told.source, generation.source, 0, tokens)
        told.states_id.CopyFrom(generation.states.message.states_id)
    told.generation_id = generation.generation_id
    timings = told.timings
    timings.elapsed_ms = (time.monotonic() - generation.read_at_s) * 1000
    timings.queue_ms = event.queue_ms
    timings.compute_ms = event.compute_ms
    timings.batch_size = event.batch_size
    return response


def _add_steps(
    steps: Any, predicted: Sequence[PredictedToken], first_index: int, tokens: TokenTable
) -> None:
    for index, item in enumerate(predicted, first_index):
        steps.add(
            index=index,
            token=item.token,
            text=tokens.texts[item.token],
            starts_word=tokens.starts_word[item.token],
            log_probability=item.log_probability,
            attention=item.attention,
            end_of_sequence=item.token == tokens.end_token,
            from_draft=item.from_draft,
        )


def trace_generation(tracer: Tracer, end: Event) -> None:
    """Record a generation's spans, if its request names a sampled trace."""
    generation = end.generation
    parent = sampled_parent(generation.traceparent)
    if parent is None or generation.prefill_s is None or generation.end_reason is None:
        return
    batch = tracer.batch(time.monotonic_ns)
    queued_s = (generation.read_at_s, generation.prefill_s)
    batch.add("decoder.queue", new_child(parent), parent, queued_s, {})
    prefill_s = (generation.prefill_s, generation.prefilled_s)
    batch.add("decoder.prefill", new_child(parent), parent, prefill_s, {})
    attributes: dict[str, str | int | float] = {
        "earvoice.tokens.proposed": generation.step_count,
        "earvoice.draft.accepted": generation.draft_accepted_count,
        "earvoice.batch.size": generation.largest_batch,
        "earvoice.engine.compute_ms": end.compute_ms,
        "earvoice.engine.queue_ms": end.queue_ms,
        "earvoice.generation.end": generation.end_reason.name,
    }
    batch.add(
        "decoder.steps",
        new_child(parent),
        parent,
        (generation.prefilled_s, generation.ended_s),
        attributes,
        failed=generation.failure is not None,
    )
    tracer.put(batch.spans)
