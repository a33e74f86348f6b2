"""A session with the decoder service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.backend import GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.call import BackendCall
from earvoice.policy.backends.request_clock import RequestClock
from earvoice.policy.decisions.base import Token
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.evidence import token_of


class DecoderStream:
    """An open decoder session.

    Args:
        call: the stream.
    """

    def __init__(self, call: BackendCall) -> None:
        self._call = call
        self._generation_id = 0
        self._loaded: object = None
        self._halting: asyncio.Task[None] | None = None

    async def open(self, options: StreamOptions, model_hash: str, session_id: str) -> None:
        """Open the session."""
        command = decoder_pb.DecodeOpen(
            model_hash=model_hash,
            target_language_code=options.target_language_code,
            attention_layer=options.attention_layer,
            attention_heads=options.attention_heads,
            beam_size=options.beam_size,
            session_id=session_id,
        )
        await self._call.write(decoder_pb.DecodeRequest(open=command))
        await self._call.read()

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncGenerator[GenerationSteps | GenerationEnd, None]:
        """Decode; yields steps, then exactly one end. A beam gives all its steps at once.

        Raises:
            RuntimeError: the decoder did not keep to the forced prefix.
            EarvoiceError: the stream has ended.
        """
        self._generation_id += 1
        expected_index = len(request.prefix)
        clock = self._call.clock()
        await self._send(request)
        try:
            while True:
                answer: decoder_pb.DecodeResponse = await self._call.read()
                if answer.HasField("steps") and self._is_current(answer.steps):
                    expected_index = _checked_index(answer.steps.steps, expected_index)
                    yield _generation_steps(clock, answer.steps)
                if answer.HasField("beam") and self._is_current(answer.beam):
                    for hypothesis in answer.beam.hypotheses:
                        _checked_index(hypothesis.steps, expected_index)
                    yield _beam_steps(clock, answer.beam, tells_all=request.all_hypotheses)
                if answer.HasField("done") and self._is_current(answer.done):
                    yield _generation_end(clock, answer.done)
                    return
        finally:
            await self._halted()

    def halt(self) -> None:
        """Ask the running generation to stop; its end still comes."""
        command = decoder_pb.DecodeRequest(halt=decoder_pb.Halt(generation_id=self._generation_id))
        # Reading goes on meanwhile: a reader that waits for its own writes can lock up both ends.
        self._halting = asyncio.create_task(self._call.write(command))

    async def stay(self) -> None:
        """Keep the decoder from taking a long silence for a caller that is gone."""
        # No generation has this number, so that halting it is a sign of life and nothing more.
        await self._call.write(decoder_pb.DecodeRequest(halt=decoder_pb.Halt(generation_id=0)))

    async def _halted(self) -> None:
        """Wait for the halt on its way. Should it fail, so does the next read or write."""
        if self._halting is not None:
            await asyncio.gather(self._halting, return_exceptions=True)
            self._halting = None

    async def _send(self, request: GenerationRequest) -> None:
        await self._halted()
        states = request.states
        if not isinstance(states, types_pb2.States):
            raise TypeError(f"states are {type(states).__name__}, not the encoder's message")
        if states is not self._loaded:
            await self._call.write(decoder_pb.DecodeRequest(states=states))
            self._loaded = states
        command = decoder_pb.Generate(
            generation_id=self._generation_id,
            states_id=states.states_id,
            prefix=request.prefix,
            draft=request.draft,
            max_new_tokens=request.max_new_tokens,
            forbid_end_of_sequence=request.forbid_end,
            attention_layer=request.attention_layer,
            attention_heads=request.attention_heads,
            beam_size=request.beam_size,
            all_hypotheses=request.all_hypotheses,
            prefix_attention=request.prefix_attention,
        )
        await self._call.write(decoder_pb.DecodeRequest(generate=command))

    def _is_current(
        self, message: decoder_pb.Steps | decoder_pb.Beam | decoder_pb.GenerationDone
    ) -> bool:
        return message.generation_id == self._generation_id


def _generation_end(clock: RequestClock, done: decoder_pb.GenerationDone) -> GenerationEnd:
    hit_limit = done.reason == decoder_pb.GenerationDone.REASON_LIMIT
    return GenerationEnd(hit_limit, clock.timings(done.timings), done.draft_accepted_count)


def _generation_steps(clock: RequestClock, steps: decoder_pb.Steps) -> GenerationSteps:
    tokens, end = _tokens_and_end(steps.steps)
    rows = [list(row.weights) for row in steps.prefix_attention]
    timings = clock.timings(steps.timings)
    return GenerationSteps(tokens, end, timings, prefix_attention=rows)


def _beam_steps(clock: RequestClock, beam: decoder_pb.Beam, *, tells_all: bool) -> GenerationSteps:
    tokens, end = _tokens_and_end(beam.hypotheses[0].steps)
    alternatives = [
        [step.token for step in hypothesis.steps if not step.end_of_sequence]
        for hypothesis in beam.hypotheses
    ]
    rows = [list(row.weights) for row in beam.prefix_attention]
    timings = clock.timings(beam.timings)
    return GenerationSteps(tokens, end, timings, alternatives if tells_all else (), rows)


def _tokens_and_end(steps: Iterable[decoder_pb.Step]) -> tuple[list[Token], Token | None]:
    """The tokens, and the end of sentence if it follows them."""
    tokens, end = [], None
    for step in steps:
        if step.end_of_sequence:
            end = token_of(step)
        else:
            tokens.append(token_of(step))
    return tokens, end


def _checked_index(steps: Iterable[decoder_pb.Step], expected: int) -> int:
    """Append-only is checked where it could break: steps must follow the prefix one by one."""
    for step in steps:
        if step.index != expected:
            raise RuntimeError(f"the decoder sent step {step.index}, expected {expected}")
        expected += 1
    return expected
