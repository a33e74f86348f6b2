"""Messages as the decoder's commands."""

from __future__ import annotations

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.decoder.command import (
    Command,
    GenerateCommand,
    HaltCommand,
    OpenCommand,
    StatesCommand,
)
from earvoice.decoder.state_block import ElementType, StateBlock, StatesId
from earvoice.runtime.errors import InvalidFieldError

_COMMANDS = "open, states, generate or halt"


def command_of(request: decoder_pb.DecodeRequest, read_at_s: float) -> Command:
    """Return the command that a message holds.

    Args:
        request: the message.
        read_at_s: monotonic clock when it was read, in seconds.

    Raises:
        InvalidFieldError: it holds none, or states in an unknown number format.
    """
    match request.WhichOneof("command"):
        case "open":
            return _open_of(request.open)
        case "states":
            return StatesCommand(_block_of(request.states), request.states.first_changed)
        case "generate":
            traceparent = request.trace_context.traceparent
            return _generate_of(request.generate, read_at_s, traceparent)
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


def _generate_of(
    message: decoder_pb.Generate, read_at_s: float, traceparent: str
) -> GenerateCommand:
    return GenerateCommand(
        generation_id=message.generation_id,
        states_id=_states_id_of(message.states_id),
        prefix=message.prefix,
        draft=message.draft,
        max_new_tokens=message.max_new_tokens,
        forbid_end=message.forbid_end_of_sequence,
        read_at_s=read_at_s,
        attention_layer=message.attention_layer,
        attention_heads=tuple(message.attention_heads),
        beam_size=message.beam_size,
        all_hypotheses=message.all_hypotheses,
        prefix_attention=message.prefix_attention,
        traceparent=traceparent,
    )
