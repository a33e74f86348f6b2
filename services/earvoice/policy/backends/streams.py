"""A session with the encoder, and one with the decoder, over one gRPC stream each.

What the two answer meets the session's own types here and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.policies.base import Token
from earvoice.policy.backend import Encoded, GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.call import BackendCall
from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.config import ENCODING_NUMBERS


class EncoderStream:
    def __init__(self, call: BackendCall) -> None:
        self.call = call
        self._revision = 0

    async def open(self, options: StreamOptions, model_hash: str, session_id: str) -> None:
        audio = options.audio_format
        command = encoder_pb.EncodeOpen(
            audio_format=types_pb2.AudioFormat(
                encoding=ENCODING_NUMBERS[audio.encoding],
                sample_rate_hertz=audio.sample_rate_hz,
                channel_count=audio.channel_count,
            ),
            model_hash=model_hash,
            session_id=session_id,
            # Guards and `min_confidence` read it, whether the client wants it or not.
            enable_source_transcript=True,
            # The guards let nothing be written then, whatever the network would make of it.
            skip_silence=options.uses_guards,
        )
        await self._ask(encoder_pb.EncodeRequest(open=command))

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._revision += 1
        request = encoder_pb.EncodeRequest()
        command = request.audio if end_sample is None else request.finish
        command.revision, command.data = self._revision, audio
        if end_sample is not None:
            request.finish.end_sample = end_sample
        clock = self.call.clock()
        answer = await self._ask(request)
        timings = clock(answer.timings)
        return Encoded(answer.encoded.states, evidence_of(answer.encoded), timings)

    async def reset(self, utterance: int, start_sample: int) -> None:
        self._revision = 0
        command = encoder_pb.EncodeReset(utterance=utterance, start_sample=start_sample)
        await self._ask(encoder_pb.EncodeRequest(reset=command))

    async def _ask(self, request: encoder_pb.EncodeRequest) -> encoder_pb.EncodeResponse:
        await self.call.write(request)
        answer: encoder_pb.EncodeResponse = await self.call.read()
        return answer


def evidence_of(encoded: encoder_pb.Encoded) -> Evidence:
    heard, voice = encoded.evidence, encoded.evidence.voice_activity
    return Evidence(
        ctc_labels=list(heard.ctc_labels),
        blank_label=heard.blank_label,
        span_end_samples=list(encoded.states.span_end_samples),
        complete_word_count=heard.complete_word_count,
        has_partial_word=heard.has_partial_word,
        label_count=heard.label_count,
        frame_count=heard.frame_count,
        voice_activity=VoiceActivity(
            voice.has_speech,
            voice.speech_end_sample,
            [(pause.start_sample, pause.end_sample) for pause in voice.pauses],
        ),
        source_transcript=heard.source_transcript,
    )


class DecoderStream:
    def __init__(self, call: BackendCall) -> None:
        self.call = call
        self._generation_id = 0
        self._sent_states: object = None
        self._halting: asyncio.Task[None] | None = None

    async def open(self, options: StreamOptions, model_hash: str, session_id: str) -> None:
        command = decoder_pb.DecodeOpen(
            model_hash=model_hash,
            target_language_code=options.target_language_code,
            attention_layer=options.attention_layer,
            attention_heads=options.attention_heads,
            beam_size=options.beam_size,
            session_id=session_id,
        )
        await self.call.write(decoder_pb.DecodeRequest(open=command))
        await self.call.read()

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncGenerator[GenerationSteps | GenerationEnd, None]:
        """Decode; yields steps, then exactly one end. A beam gives all its steps at once."""
        self._generation_id += 1
        expected_index = len(request.prefix)
        clock = self.call.clock()
        await self._send(request)
        try:
            while True:
                answer: decoder_pb.DecodeResponse = await self.call.read()
                # Answers on their way when an earlier generation was halted still come.
                this = self._generation_id
                if answer.HasField("steps") and answer.steps.generation_id == this:
                    steps = answer.steps
                    tokens, end = _read_steps(steps.steps, expected_index)
                    expected_index += len(steps.steps)
                    rows = [list(row.weights) for row in steps.prefix_attention]
                    yield GenerationSteps(tokens, end, clock(steps.timings), (), rows)
                elif answer.HasField("beam") and answer.beam.generation_id == this:
                    beam = answer.beam
                    found = [_read_steps(item.steps, expected_index) for item in beam.hypotheses]
                    tokens, end = found[0]
                    ids = [[token.token_id for token in item] for item, _ in found]
                    items = ids if request.all_hypotheses else ()
                    rows = [list(row.weights) for row in beam.prefix_attention]
                    yield GenerationSteps(tokens, end, clock(beam.timings), items, rows)
                elif answer.HasField("done") and answer.done.generation_id == this:
                    done = answer.done
                    hit_limit = done.reason == decoder_pb.GenerationDone.REASON_LIMIT
                    timings = clock(done.timings)
                    yield GenerationEnd(hit_limit, timings, done.draft_accepted_count)
                    return
        finally:
            # Should the halt on its way fail, so does the next read or write.
            if self._halting is not None:
                await asyncio.gather(self._halting, return_exceptions=True)
                self._halting = None

    def halt(self) -> None:
        """Ask the running generation to stop; its end still comes."""
        command = decoder_pb.DecodeRequest(halt=decoder_pb.Halt(generation_id=self._generation_id))
        # Reading goes on meanwhile: a reader that waits for its own writes can lock up both ends.
        self._halting = asyncio.create_task(self.call.write(command))

    async def stay(self) -> None:
        """Keep the decoder from taking a long silence for a caller that is gone."""
        # No generation has this number, so that halting it is a sign of life and nothing more.
        await self.call.write(decoder_pb.DecodeRequest(halt=decoder_pb.Halt(generation_id=0)))

    async def _send(self, request: GenerationRequest) -> None:
        states = request.states
        if not isinstance(states, types_pb2.States):
            raise TypeError(f"states are {type(states).__name__}, not the encoder's message")
        if states is not self._sent_states:
            await self.call.write(decoder_pb.DecodeRequest(states=states))
            self._sent_states = states
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
        await self.call.write(decoder_pb.DecodeRequest(generate=command))


def _read_steps(
    steps: Iterable[decoder_pb.Step], expected_index: int
) -> tuple[list[Token], Token | None]:
    """Return tokens and end of sentence.

    Append-only is checked where it could break: steps must follow the prefix one by one.
    """
    tokens, end = [], None
    for index, step in enumerate(steps, expected_index):
        if step.index != index:
            raise RuntimeError(f"the decoder sent step {step.index}, expected {index}")
        token = Token(
            step.token, step.text, step.starts_word, list(step.attention), step.log_probability
        )
        if step.end_of_sequence:
            end = token
        else:
            tokens.append(token)
    return tokens, end
