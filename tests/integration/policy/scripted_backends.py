"""Encoders and decoders that play a script over real gRPC: a word for every 320 ms of audio.

A failure that is one of our errors is told as the services tell it; a code is told as a transport
or a proxy tells it, without a reason. Replicas have a port of their own, and can be made to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import decoder_service_pb2_grpc as decoder_grpc
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import encoder_service_pb2_grpc as encoder_grpc
from earvoice.api.v1 import types_pb2
from earvoice.runtime.errors import EarvoiceError
from earvoice.runtime.interceptor import StatusInterceptor
from earvoice.runtime.transport import MESSAGE_LIMIT_BYTES, server_options

RATE_HERTZ = 16_000
STATE_SAMPLES = RATE_HERTZ * 80 // 1000
STATES_PER_WORD = 4
FIRST_TOKEN = 10
END_TOKEN = 2
BLANK = 0

Failure = Exception | grpc.StatusCode

MODEL = types_pb2.ModelDescription(
    name="scripted",
    hash="h1",
    version="1",
    source_language_code="en",
    target_language_codes=["de"],
    decoder_layer_count=6,
    default_policy="edatt",
    default_alpha=0.5,
    default_lambda_states=2,
    default_attention_layer=4,
    default_frames=4,
    default_segment_ms=800,
)


@dataclass
class ScriptedEncoder(encoder_grpc.EncoderServiceServicer):
    """Hears speech everywhere.

    Attributes:
        gate: nothing is encoded while it is shut.
        failure: instead of the next answer to anything but an opening.
        refusal: instead of opening a session.
        commands: names of what came, with positions.
        max_state_count: most states of one answer.
        asked: set once there is something.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Failure | None = None
    refusal: Failure | None = None
    openings: list[encoder_pb.EncodeOpen] = field(default_factory=list)
    commands: list[tuple[object, ...]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    session_count: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    max_state_count: int = 0
    model: types_pb2.ModelDescription = field(default_factory=lambda: MODEL)

    async def DescribeModel(self, request, context):
        return encoder_pb.EncoderServiceDescribeModelResponse(model=self.model)

    async def Encode(self, request_iterator, context):
        self.session_count += 1
        self.idle.clear()
        try:
            start = end = 0
            utterance = 0
            async for request in request_iterator:
                kind = request.WhichOneof("command")
                if kind == "open":
                    self.openings.append(request.open)
                else:
                    self.asked.set()
                await self.gate.wait()
                await fail(self.refusal if kind == "open" else self.failure, context)
                if kind == "open":
                    opened = encoder_pb.EncodeOpened(model=self.model)
                    yield encoder_pb.EncodeResponse(opened=opened)
                elif kind == "reset":
                    utterance, start = request.reset.utterance, request.reset.start_sample
                    end = start
                    self.commands.append(("reset", utterance, start))
                    done = encoder_pb.EncodeResetDone(utterance=utterance)
                    yield encoder_pb.EncodeResponse(reset_done=done)
                else:
                    command = getattr(request, kind)
                    end += len(command.data) // 2
                    self.commands.append((kind, end))
                    end = command.end_sample if kind == "finish" else end
                    yield self._encoded(utterance, command.revision, start, end)
        finally:
            self.session_count -= 1
            if not self.session_count:
                self.idle.set()

    def _encoded(self, utterance: int, revision: int, start: int, end: int):
        count = (end - start) // STATE_SAMPLES
        self.max_state_count = max(self.max_state_count, count)
        states_id = types_pb2.StatesId(utterance=utterance, revision=revision)
        states = types_pb2.States(
            states_id=states_id,
            state_count=count,
            dimension=1,
            element_type=types_pb2.ELEMENT_TYPE_FLOAT32,
            # The decoder's script needs to know where the audio begins.
            data=start.to_bytes(8, "little"),
            span_end_samples=[start + (state + 1) * STATE_SAMPLES for state in range(count)],
        )
        evidence = encoder_pb.SourceEvidence(
            ctc_labels=[7 if state % STATES_PER_WORD == 0 else BLANK for state in range(count)],
            blank_label=BLANK,
            complete_word_count=count // STATES_PER_WORD,
            label_count=count // 2,
            last_label_end_sample=end,
            frame_count=(end - start) * 100 // RATE_HERTZ,
        )
        evidence.voice_activity.has_speech = end > start
        evidence.voice_activity.speech_start_sample = start
        evidence.voice_activity.speech_end_sample = end
        return encoder_pb.EncodeResponse(
            encoded=encoder_pb.Encoded(states=states, evidence=evidence),
            timings=types_pb2.Timings(elapsed_ms=3, compute_ms=2),
        )


@dataclass
class ScriptedDecoder(decoder_grpc.DecoderServiceServicer):
    """Says the word of every block of four states; each attends to its own block.

    Attributes:
        gate: no step is taken while it is shut.
        failure_after: answers that come before.
        asked: likewise.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Failure | None = None
    refusal: Failure | None = None
    failure_after: int = 0
    requests: list[decoder_pb.Generate] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    halted_count: int = 0
    session_count: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    model: types_pb2.ModelDescription = field(default_factory=lambda: MODEL)

    async def DescribeModel(self, request, context):
        return decoder_pb.DecoderServiceDescribeModelResponse(model=self.model)

    async def Decode(self, request_iterator, context):
        self.session_count += 1
        self.idle.clear()
        halted: set[int] = set()
        commands: asyncio.Queue[decoder_pb.DecodeRequest | None] = asyncio.Queue()
        reading = asyncio.create_task(_read(request_iterator, commands, halted))
        states = types_pb2.States()
        try:
            while (request := await commands.get()) is not None:
                match request.WhichOneof("command"):
                    case "open":
                        await fail(self.refusal, context)
                        opened = decoder_pb.DecodeOpened(model=self.model)
                        yield decoder_pb.DecodeResponse(opened=opened)
                    case "states":
                        states = request.states
                    case "generate":
                        self.requests.append(request.generate)
                        self.asked.set()
                        async for answer in self._generate(request.generate, states, halted):
                            if self.failure_after <= 0:
                                await fail(self.failure, context)
                            self.failure_after -= 1
                            yield answer
        finally:
            reading.cancel()
            self.session_count -= 1
            if not self.session_count:
                self.idle.set()

    async def _generate(self, command, states, halted) -> AsyncIterator[decoder_pb.DecodeResponse]:
        sentence = list(_sentence(command.prefix, states))
        rows = [
            decoder_pb.AttentionRow(weights=_row(token - FIRST_TOKEN, states))
            for token in command.prefix
            if command.prefix_attention
        ]
        timings = types_pb2.Timings(elapsed_ms=1, compute_ms=1)
        reason = decoder_pb.GenerationDone.REASON_END_OF_SEQUENCE
        if command.beam_size > 1:
            yield decoder_pb.DecodeResponse(beam=_beam(command, sentence, rows, timings))
        else:
            for step in sentence:
                await self.gate.wait()
                if command.generation_id in halted:
                    self.halted_count += 1
                    reason = decoder_pb.GenerationDone.REASON_HALTED
                    break
                steps = decoder_pb.Steps(
                    generation_id=command.generation_id,
                    steps=[step],
                    timings=timings,
                    prefix_attention=rows,
                )
                rows = []
                yield decoder_pb.DecodeResponse(steps=steps)
                await asyncio.sleep(0)
        done = decoder_pb.GenerationDone(
            generation_id=command.generation_id, reason=reason, timings=timings
        )
        yield decoder_pb.DecodeResponse(done=done)


async def fail(failure: Failure | None, context) -> None:
    """End a call, if it is to be ended."""
    if isinstance(failure, grpc.StatusCode):
        await context.abort(failure, "as a proxy says it")
    elif failure is not None:
        raise failure


async def _read(requests, commands: asyncio.Queue, halted: set[int]) -> None:
    async for request in requests:
        if request.WhichOneof("command") == "halt":
            halted.add(request.halt.generation_id)
        else:
            commands.put_nowait(request)
    commands.put_nowait(None)


def _start_state(states: types_pb2.States) -> int:
    return int.from_bytes(states.data, "little") // STATE_SAMPLES


def _row(block: int, states: types_pb2.States) -> list[float]:
    place = block * STATES_PER_WORD + 2 - _start_state(states)
    weights = [2.0 ** -abs(state - place) for state in range(states.state_count)]
    return [weight / sum(weights) for weight in weights]


def _sentence(prefix: Iterable[int], states: types_pb2.States):
    prefix = list(prefix)
    first = _start_state(states) // STATES_PER_WORD
    if prefix:
        first = prefix[-1] - FIRST_TOKEN + 1
    last = (_start_state(states) + states.state_count) // STATES_PER_WORD
    index = len(prefix)
    for block in range(first, last + 1):
        yield decoder_pb.Step(
            index=index,
            token=FIRST_TOKEN + block,
            text=f"w{block}".encode(),
            starts_word=True,
            attention=_row(block, states),
        )
        index += 1
    yield decoder_pb.Step(
        index=index,
        token=END_TOKEN,
        end_of_sequence=True,
        attention=_row(last, states),
    )


def _beam(command, sentence, rows, timings) -> decoder_pb.Beam:
    hypotheses = [decoder_pb.Hypothesis(steps=sentence, score=-0.1)]
    if command.all_hypotheses and len(sentence) > 1:
        shorter = decoder_pb.Hypothesis(steps=sentence[:-1], score=-0.2)
        shorter.steps[-1].token = END_TOKEN
        shorter.steps[-1].end_of_sequence = True
        hypotheses.append(shorter)
    return decoder_pb.Beam(
        generation_id=command.generation_id,
        hypotheses=hypotheses,
        timings=timings,
        prefix_attention=rows,
    )


async def serve(encoder: ScriptedEncoder, decoder: ScriptedDecoder) -> tuple[grpc.aio.Server, str]:
    """Serve both on one free port of this machine; return server and address."""
    server = grpc.aio.server(
        interceptors=[StatusInterceptor(write_timeout_s=10)],
        options=server_options(MESSAGE_LIMIT_BYTES),
    )
    encoder_grpc.add_EncoderServiceServicer_to_server(encoder, server)
    decoder_grpc.add_DecoderServiceServicer_to_server(decoder, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


ENCODER_NAME = encoder_pb.DESCRIPTOR.services_by_name["EncoderService"].full_name
DECODER_NAME = decoder_pb.DESCRIPTOR.services_by_name["DecoderService"].full_name


class HealthThatMayFallSilent(health.aio.HealthServicer):
    """Answers nothing while its process is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def Check(self, request, context):
        await self.gate.wait()
        self.asked.set()
        return await super().Check(request, context)

    async def Watch(self, request, context):
        await self.gate.wait()
        await super().Watch(request, context)


@dataclass
class ScriptedReplica:
    """One replica."""

    servicer: ScriptedEncoder | ScriptedDecoder
    health: HealthThatMayFallSilent
    port: int = 0
    server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def service(self) -> str:
        return "encoder" if isinstance(self.servicer, ScriptedEncoder) else "decoder"

    @property
    def _name(self) -> str:
        return ENCODER_NAME if self.service == "encoder" else DECODER_NAME

    async def start(self) -> None:
        self.server = grpc.aio.server(
            interceptors=[StatusInterceptor(write_timeout_s=10)],
            options=server_options(MESSAGE_LIMIT_BYTES),
        )
        if isinstance(self.servicer, ScriptedEncoder):
            encoder_grpc.add_EncoderServiceServicer_to_server(self.servicer, self.server)
        else:
            decoder_grpc.add_DecoderServiceServicer_to_server(self.servicer, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port(self.address)
        await self.server.start()
        await self.tell(serving=True)

    async def tell(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        await self.health.set(self._name, value)

    async def die(self) -> None:
        """Be gone, with every connection."""
        assert self.server is not None
        await self.server.stop(None)

    def stop(self) -> None:
        """Answer nothing any more, as a process does that is stopped."""
        self.servicer.gate.clear()
        self.health.gate.clear()

    def fail(self, failure: EarvoiceError | grpc.StatusCode) -> None:
        self.servicer.failure = failure


def scripted_replica(service: str) -> ScriptedReplica:
    servicer = ScriptedEncoder() if service == "encoder" else ScriptedDecoder()
    servicer.gate.set()
    return ScriptedReplica(servicer, HealthThatMayFallSilent())
