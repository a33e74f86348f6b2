"""A caller of the decoder made from the protos alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import error_reason_pb2, types_pb2

Reason = pb.GenerationDone.Reason


@dataclass
class Hypothesis:
    """Everything that one generation answered."""

    messages: list[pb.Steps] = field(default_factory=list)
    beams: list[pb.Beam] = field(default_factory=list)
    done: pb.GenerationDone = field(default_factory=pb.GenerationDone)

    @property
    def steps(self) -> list[pb.Step]:
        return [step for message in self.messages for step in message.steps]

    @property
    def tokens(self) -> list[int]:
        return [step.token for step in self.steps]


@dataclass
class Caller:
    call: Any

    async def write(self, **command: Any) -> None:
        """Send one command; after the end of the call, reading tells why it ended."""
        with contextlib.suppress(asyncio.InvalidStateError):
            await self.call.write(pb.DecodeRequest(**command))

    async def close(self) -> None:
        """Half-close and read what is left; a failed call raises."""
        with contextlib.suppress(asyncio.InvalidStateError):
            await self.call.done_writing()
        while await self.call.read() is not grpc.aio.EOF:
            pass

    async def read(self) -> pb.DecodeResponse:
        response = await self.call.read()
        assert isinstance(response, pb.DecodeResponse), "the call ended without an error"
        return response

    async def open(self, language: str = "de", **fields: Any) -> pb.DecodeOpened:
        await self.write(open=pb.DecodeOpen(target_language_code=language, **fields))
        return (await self.read()).opened

    async def states(self, states: np.ndarray, revision: int = 1) -> None:
        await self.write(states=states_message(states, revision))

    async def request(self, generation_id: int, revision: int = 1, **fields: Any) -> None:
        fields.setdefault("max_new_tokens", 40)
        states_id = types_pb2.StatesId(utterance=0, revision=revision)
        generate = pb.Generate(generation_id=generation_id, states_id=states_id, **fields)
        await self.write(generate=generate)

    async def hypothesis(self, generation_id: int) -> Hypothesis:
        """Read the answers of a generation, which must be the next ones."""
        hypothesis = Hypothesis()
        while True:
            response = await self.read()
            if response.WhichOneof("answer") == "done":
                assert response.done.generation_id == generation_id
                hypothesis.done = response.done
                return hypothesis
            if response.WhichOneof("answer") == "beam":
                assert response.beam.generation_id == generation_id
                hypothesis.beams.append(response.beam)
                continue
            assert response.steps.generation_id == generation_id
            hypothesis.messages.append(response.steps)

    async def generate(self, generation_id: int, revision: int = 1, **fields: Any) -> Hypothesis:
        await self.request(generation_id, revision, **fields)
        return await self.hypothesis(generation_id)


def states_message(states: np.ndarray, revision: int = 1, **changes: Any) -> types_pb2.States:
    """Float32 states as a message, but for the changes."""
    fields: dict[str, Any] = {
        "states_id": types_pb2.StatesId(utterance=0, revision=revision),
        "state_count": states.shape[0],
        "dimension": states.shape[1],
        "element_type": types_pb2.ELEMENT_TYPE_FLOAT32,
        "data": states.astype("<f4").tobytes(),
    }
    return types_pb2.States(**(fields | changes))


def was_too_late(error: grpc.aio.AioRpcError) -> bool:
    """Whether the caller's library failed to write, because the server had ended the call."""
    return "SendMessageOperation" in (error.debug_error_string() or "")


def facts_of(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str, str]:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    assert status is not None
    assert status.details[0].Unpack(info)
    assert f"ERROR_REASON_{info.reason}" in error_reason_pb2.ErrorReason.keys()  # noqa: SIM118
    return error.code(), info.reason, error.details() or ""


def attention_of(steps: Sequence[pb.Step]) -> np.ndarray:
    return np.array([list(step.attention) for step in steps])
