"""A session on a recording: encoder and decoder answer from recorded revisions and hypotheses.

Both report the computation of live ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from importlib.metadata import version

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.client.event import EventReader
from earvoice.decoder.strategy import TokenTable
from earvoice.evaluation.collector import Collector
from earvoice.evaluation.instance import default_unit
from earvoice.evaluation.recording import RecordingError
from earvoice.evaluation.replay.decoding_cost import DecodingCost
from earvoice.evaluation.replay.hypotheses import AttentionChoice, HypothesisRequest, OpenedInput
from earvoice.policies.base import Token, longest_common_prefix_tokens
from earvoice.policy.audio_buffer import MESSAGE_LIMIT_BYTES, AudioBuffer
from earvoice.policy.backend import Encoded, GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.event import Event
from earvoice.policy.session import TranslationSession
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import HopTimings
from earvoice.policy.wire.config import effective_config
from earvoice.policy.wire.events import ResponseWriter
from earvoice.runtime.audio_format import AudioFormat


class RecordedEncoder:
    """An encoder session that answers from a recording; it only counts the audio's samples."""

    def __init__(self, source: OpenedInput, frame_bytes: int) -> None:
        self._source = source
        self._frame_bytes = frame_bytes
        self._end_sample = 0
        self._heard_ms = 0.0
        self.replay_count = 0

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._end_sample += len(audio) // self._frame_bytes
        number, revision = self._source.revision(self._end_sample, final=end_sample is not None)
        computation_ms = revision.hearing_ms - self._heard_ms + revision.encoding_ms
        self._heard_ms = revision.hearing_ms
        timings = HopTimings(computation_ms, computation_ms, computation_ms)
        return self._source.encoded(number, timings)

    async def reset(self, utterance: int, start_sample: int) -> None:
        del utterance
        raise RecordingError(
            f"nothing was recorded of an utterance from sample {start_sample} on; endpointing and "
            "history selection cannot be replayed"
        )


class ReplayedDecoder:
    """`earvoice.policy.backend.DecoderBackend` on a hypothesis source.

    It answers as the service does: first all that the first pass finds, then token by token, and
    nothing after a halt. A halt reaches the service while it computes the next step, so that step
    is counted.

    Args:
        shown: attention for requests that do not name any.
        forced_count: number of start and language tokens.
        uses_drafts: whether drafts are verified; if not, each token is a step.
    """

    def __init__(
        self,
        source: OpenedInput,
        shown: AttentionChoice,
        forced_count: int,
        table: TokenTable,
        cost_of: Callable[[int], DecodingCost],
        *,
        uses_drafts: bool,
    ) -> None:
        self._source = source
        self._shown = shown
        self._forced_count = forced_count
        self._table = table
        self._cost_of = cost_of
        self._uses_drafts = uses_drafts
        self._halted = False
        self.replay_count = 0

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        states = request.states
        if not isinstance(states, types_pb2.States):
            raise TypeError(f"states are {type(states).__name__}, not the encoder's message")
        if request.prefix_attention:
            raise RecordingError("history selection cannot be replayed")
        self._halted = False
        wanted = HypothesisRequest(
            states.states_id.revision - 1,
            tuple(request.prefix),
            request.max_new_tokens,
            request.forbid_end,
            request.beam_size,
        )
        answers = (
            self._generate_beam(request, wanted, states.state_count)
            if request.beam_size > 1
            else self._generate_greedily(request, wanted, states.state_count)
        )
        async for answer in answers:
            yield answer

    def halt(self) -> None:
        self._halted = True

    async def keep_alive(self) -> None:
        """Do nothing: a replay is never abandoned."""

    async def _generate_greedily(
        self, request: GenerationRequest, wanted: HypothesisRequest, state_count: int
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        found, passed = await self._source.continuation(wanted, request.draft)
        shown = found.shown(self._attention(request), self._table)
        tokens = shown[passed : passed + request.max_new_tokens]
        draft = request.draft if self._uses_drafts else ()
        cost = self._cost_of(1)
        read_count = self._forced_count + len(request.prefix)
        computed_ms = cost.opening.at(read_count + len(draft), state_count)
        agreeing = longest_common_prefix_tokens([[token.token_id for token in tokens], draft])
        known = min(agreeing + 1, len(tokens))
        yield replace(
            self._steps(tokens[:known], computed_ms), source=found.shown_source(self._table)
        )
        for index in range(known, len(tokens)):
            computed_ms += cost.step.at(read_count + index, state_count)
            if self._halted:
                break
            yield self._steps(tokens[index : index + 1], computed_ms)
        ended = tokens[-1].token_id == self._table.end_token
        hit_limit = not self._halted and not ended and len(tokens) == request.max_new_tokens
        yield GenerationEnd(hit_limit, _timings(computed_ms))

    async def _generate_beam(
        self, request: GenerationRequest, wanted: HypothesisRequest, state_count: int
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        beam = await self._source.beam(wanted)
        tokens = beam.shown(self._attention(request), self._table)
        read_count = self._forced_count + len(request.prefix)
        cost = self._cost_of(request.beam_size)
        computed_ms = _beam_cost_ms(cost, read_count, beam.step_count, state_count)
        steps = self._steps(tokens, computed_ms)
        yield GenerationSteps(
            steps.tokens,
            steps.end,
            steps.timings,
            beam.alternatives if request.all_hypotheses else (),
            source=beam.shown_source(self._table),
        )
        yield GenerationEnd(not beam.ended, _timings(computed_ms))

    def _attention(self, request: GenerationRequest) -> AttentionChoice:
        if not request.attention_layer:
            return self._shown
        heads = tuple(request.attention_heads)
        return replace(self._shown, layer=request.attention_layer, heads=heads)

    def _steps(self, tokens: Sequence[Token], computed_ms: float) -> GenerationSteps:
        if tokens and tokens[-1].token_id == self._table.end_token:
            return GenerationSteps(tokens[:-1], tokens[-1], _timings(computed_ms))
        return GenerationSteps(tokens, None, _timings(computed_ms))


def _beam_cost_ms(cost: DecodingCost, read_count: int, step_count: int, state_count: int) -> float:
    opening_ms = cost.opening.at(read_count, state_count)
    return opening_ms + sum(
        cost.step.at(read_count + index, state_count) for index in range(step_count)
    )


def _timings(computed_ms: float) -> HopTimings:
    return HopTimings(computed_ms, computed_ms, computed_ms)


async def run_session(
    options: StreamOptions,
    encoder: RecordedEncoder,
    decoder: ReplayedDecoder,
    model: types_pb2.ModelDescription,
    sample_count: int,
) -> Collector:
    """Run the policy service's session on dummy audio.

    Returns:
        The events as a client would receive them.
    """
    collector = Collector(default_unit(options.target_language_code))
    rate_hertz = options.audio_format.sample_rate_hz
    writer = ResponseWriter(options)
    reader = EventReader(AudioFormat("mulaw", rate_hertz, 1), lambda: 0.0)
    started = public_pb.SessionStarted(
        config=effective_config(options, model),
        model=model,
        server_version=version("earvoice"),
        elapsed_clock=public_pb.ELAPSED_CLOCK_TRUE,
    )
    collector.add(reader.read(writer.started(started)))

    async def tell(event: Event) -> None:
        collector.add(reader.read(writer.response(event)))

    audio = AudioBuffer(options.audio_format, sample_count + 1)
    for start in range(0, sample_count, MESSAGE_LIMIT_BYTES):
        await audio.append(bytes(min(MESSAGE_LIMIT_BYTES, sample_count - start)), 0.0)
    await audio.end()
    session = TranslationSession(options, encoder, decoder, audio, tell, lambda: 0.0)
    await session.run()
    return collector
