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
from earvoice.decoder.command import (
    Command,
    GenerateCommand,
    HaltCommand,
    OpenCommand,
    StatesCommand,
)
from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.event import Ended, Event, Opened, Spent, Stepped
from earvoice.decoder.model import ServedModel, TokenTable
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.session import DecodeSession, SessionBounds
from earvoice.decoder.settings import DecoderSettings
from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.decoder.stream import DecodeStream, Patience
from earvoice.runtime.errors import InvalidFieldError, NotReadyError
from earvoice.runtime.log import trace_id_of
from earvoice.runtime.model_description import model_description
from earvoice.runtime.session_limit import RETRY_AFTER_MS, SessionLimit

SERVICE_NAME = decoder_pb.DESCRIPTOR.services_by_name["DecoderService"].full_name
_COMMANDS = "open, states, generate or halt"
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
    """

    def __init__(self, settings: DecoderSettings) -> None:
        self._settings = settings
        self._served: _Served | None = None
        self._limit = SessionLimit(settings.session_limit)
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
            await context.write(_answer_of(event, served))

        with self._limit.admit():
            outbox = Outbox(self._settings.outbox_events, served.engine.wake)
            bounds = SessionBounds(self._settings.max_states, self._settings.max_tokens)
            session = DecodeSession(served.model, bounds, served.engine, outbox)
            stream = DecodeStream(session, outbox, self._patience)
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
                await self._limit.drain()
        except TimeoutError:
            for stream in self._streams:
                stream.end(NotReadyError("this server is draining", retry_after_ms=RETRY_AFTER_MS))
            await self._limit.drain()

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


def _answer_of(event: Event, served: _Served) -> decoder_pb.DecodeResponse:
    match event:
        case Opened():
            opened = decoder_pb.DecodeOpened(model=served.description)
            return decoder_pb.DecodeResponse(opened=opened)
        case Stepped():
            return decoder_pb.DecodeResponse(steps=_steps_of(event, served.model.tokens))
        case Ended():
            return decoder_pb.DecodeResponse(done=_done_of(event))


async def _commands(
    requests: AsyncIterator[decoder_pb.DecodeRequest], stream: DecodeStream
) -> AsyncIterator[Command]:
    async for request in requests:
        if not stream.trace_id:
            stream.trace_id = trace_id_of(request.trace_context.traceparent)
        yield _command_of(request, time.monotonic())


def _command_of(request: decoder_pb.DecodeRequest, read_at_s: float) -> Command:
    match request.WhichOneof("command"):
        case "open":
            return _open_of(request.open)
        case "states":
            return StatesCommand(_block_of(request.states), request.states.first_changed)
        case "generate":
            return _generate_of(request.generate, read_at_s)
        case "halt":
            return HaltCommand(request.halt.generation_id)
        case _:
            raise InvalidFieldError("command", "nothing", _COMMANDS)


def _open_of(message: decoder_pb.DecodeOpen) -> OpenCommand:
    return OpenCommand(
        model_hash=message.model_hash,
        target_language=message.target_language_code,
        attention_layer=message.attention_layer,
        attention_heads=tuple(message.attention_heads),
        beam_size=message.beam_size,
        session_id=message.session_id,
    )


def _block_of(message: types_pb2.States) -> StateBlock:
    try:
        element_type = ElementType(message.element_type)
    except ValueError as error:
        allowed = ", ".join(f"{item.name} ({item.value})" for item in ElementType)
        raise InvalidFieldError("states.element_type", message.element_type, allowed) from error
    return StateBlock(
        states_id=_states_id_of(message.states_id),
        state_count=message.state_count,
        dimension=message.dimension,
        element_type=element_type,
        data=message.data,
    )


def _states_id_of(message: types_pb2.StatesId) -> StatesId:
    return StatesId(message.utterance, message.revision)


def _generate_of(message: decoder_pb.Generate, read_at_s: float) -> GenerateCommand:
    return GenerateCommand(
        generation_id=message.generation_id,
        states_id=_states_id_of(message.states_id),
        prefix=message.prefix,
        draft=message.draft,
        max_new_tokens=message.max_new_tokens,
        forbid_end=message.forbid_end_of_sequence,
        read_at_s=read_at_s,
    )


def _steps_of(event: Stepped, tokens: TokenTable) -> decoder_pb.Steps:
    steps = decoder_pb.Steps(
        generation_id=event.generation_id,
        states_id=types_pb2.StatesId(
            utterance=event.states_id.utterance, revision=event.states_id.revision
        ),
        timings=_timings_of(event.spent),
    )
    for index, choice in enumerate(event.choices, event.first_index):
        steps.steps.add(
            index=index,
            token=choice.token,
            text=tokens.texts[choice.token],
            starts_word=tokens.starts_word[choice.token],
            log_probability=choice.log_probability,
            attention=choice.attention,
            end_of_sequence=choice.token == tokens.end_token,
            from_draft=choice.from_draft,
        )
    return steps


def _done_of(event: Ended) -> decoder_pb.GenerationDone:
    return decoder_pb.GenerationDone(
        generation_id=event.generation_id,
        reason=decoder_pb.GenerationDone.Reason.ValueType(event.reason),
        step_count=event.step_count,
        draft_accepted_count=event.draft_accepted_count,
        timings=_timings_of(event.spent),
        near_tie_count=event.near_tie_count,
    )


def _timings_of(spent: Spent) -> types_pb2.Timings:
    return types_pb2.Timings(
        elapsed_ms=(time.monotonic() - spent.read_at_s) * 1000,
        queue_ms=spent.queue_ms,
        compute_ms=spent.compute_ms,
        batch_size=spent.batch_size,
    )
