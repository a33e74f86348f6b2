"""The forward passes of a stream, recorded once, then computed again on their own.

The recording drives the policy's own session with an encoder and a decoder in this process, so that
segments, prefixes and drafts are those of the services; the replay calls the networks only:
features, voice activity, encoder, the decoder's prefills and steps.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import torch

from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.decoder.loading import LoadedDecoder
from earvoice.decoder.strategy import PredictedToken, Progress, Prompt, StateBlock
from earvoice.encoder.model import EncoderModel
from earvoice.encoder.session import EncodeSession
from earvoice.policies.base import Token
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.backend import Encoded, GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.replica_session import evidence_of
from earvoice.policy.event import Event, WordsReleased
from earvoice.policy.session import TranslationSession
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import HopTimings
from earvoice.policy.wire.config import stream_options

LONGEST_UTTERANCE_MS = 60_000


class Tape:
    """Passes in the order they were made.

    Attributes:
        step_count: tokens that the decoder predicted, verified drafts included.
    """

    def __init__(self) -> None:
        self._passes: list[tuple[str, Callable[[], object]]] = []
        self.step_count = 0

    def add(self, network: str, compute: Callable[[], object]) -> None:
        self._passes.append((network, compute))

    def replay(self) -> dict[str, float]:
        """Compute all passes; return the processor's seconds, user and system, by network."""
        spent_s: dict[str, float] = defaultdict(float)
        began_s = time.process_time()
        for network, compute in self._passes:
            compute()
            ended_s = time.process_time()
            spent_s[network] += ended_s - began_s
            began_s = ended_s
        return spent_s


class _Stream:
    """Features or voice activity of one utterance; each replay opens a new stream."""

    def __init__(self, open_stream: Callable[[], Any], tape: Tape) -> None:
        self._open = open_stream
        self._recorded = open_stream()
        self._replayed: Any = None
        self._tape = tape
        tape.add("encoder", self._reopen)

    def __call__(self, samples: Any) -> Any:
        kept = samples.copy()
        self._tape.add("encoder", lambda: self._replayed(kept))
        return self._recorded(samples)

    def _reopen(self) -> None:
        self._replayed = self._open()


class _TapedModel:
    """An encoder's model whose passes are recorded."""

    def __init__(self, model: EncoderModel, tape: Tape) -> None:
        self._model = model
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def open_features(self) -> Any:
        return _Stream(self._model.open_features, self._tape)

    def open_voice_activity(self) -> Any:
        return _Stream(self._model.open_voice_activity, self._tape)

    def open_encoding(self) -> Any:
        return _Stream(self._model.open_encoding, self._tape)

    def encode(self, features: Any) -> Any:
        kept = features.copy()
        self._tape.add("encoder", lambda: self._model.encode(kept))
        return self._model.encode(features)


class _LocalEncoder:
    """The encoder's session, without a wire."""

    def __init__(self, model: EncoderModel, tape: Tape, rate_hertz: int) -> None:
        taped: Any = _TapedModel(model, tape)
        self._session = EncodeSession(taped, LONGEST_UTTERANCE_MS)
        audio_format = types_pb2.AudioFormat(
            encoding=types_pb2.AUDIO_ENCODING_LINEAR16, sample_rate_hertz=rate_hertz
        )
        self._session.apply(
            encoder_pb.EncodeRequest(open=encoder_pb.EncodeOpen(audio_format=audio_format))
        )
        self._revision = 0
        self._source_text: list[int] = []
        self.replay_count = 0

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._revision += 1
        if end_sample is None:
            more = encoder_pb.EncodeAudio(revision=self._revision, data=audio)
            return self._answer(encoder_pb.EncodeRequest(audio=more))
        rest = encoder_pb.EncodeFinish(revision=self._revision, data=audio, end_sample=end_sample)
        return self._answer(encoder_pb.EncodeRequest(finish=rest))

    async def reset(self, utterance: int, start_sample: int) -> None:
        self._revision, self._source_text = 0, []
        message = encoder_pb.EncodeReset(utterance=utterance, start_sample=start_sample)
        self._session.apply(encoder_pb.EncodeRequest(reset=message))

    def _answer(self, request: encoder_pb.EncodeRequest) -> Encoded:
        encoded = self._session.apply(request).encoded
        block = StateBlock(encoded.states, self._source_text)
        return Encoded(block, evidence_of(encoded), HopTimings())


class _LocalDecoder:
    """The decoder's strategy, without a wire; a halted generation computes nothing more."""

    def __init__(self, decoder: LoadedDecoder, tape: Tape, options: StreamOptions) -> None:
        self._strategy = decoder.strategy
        self._tokens = decoder.model.tokens
        self._start = (
            decoder.model.tokens.end_token,
            *decoder.model.language_tokens[options.target_language_code],
        )
        self._layer = options.attention_layer or decoder.model.description.default_attention_layer
        self._tape = tape
        self._is_halted = False
        self._run: Any = None
        self.replay_count = 0

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncIterator[GenerationSteps | GenerationEnd]:
        self._is_halted = False
        run, progress = self._begin(request)
        taken = 0
        while True:
            kept = progress.tokens[: request.max_new_tokens - taken]
            taken += len(kept)
            self._tape.step_count += len(kept)
            ended = kept[-1].token == self._tokens.end_token
            yield self._steps(kept, ended=ended)
            hit_limit = taken >= request.max_new_tokens
            if ended or hit_limit or self._is_halted:
                yield GenerationEnd(hit_limit and not ended, HopTimings())
                return
            self._tape.add("decoder", self._step_again)
            progress = self._strategy.step([run])[0]

    def halt(self) -> None:
        self._is_halted = True

    async def stay(self) -> None:
        """Nobody waits."""

    def _begin(self, request: GenerationRequest) -> tuple[Any, Progress]:
        states = request.states
        assert isinstance(states, StateBlock)
        forced = (*self._start, *request.prefix)
        opening = Prompt(forced, tuple(request.draft), self._layer, request.forbid_end)
        known = tuple(states.source_text)

        def begin_again() -> None:
            # A copy, because the strategy caches what it has computed from a block of states.
            copy = StateBlock(states.message, [*known])
            self._run, _ = self._strategy.begin(copy, opening)

        self._tape.add("decoder", begin_again)
        return self._strategy.begin(states, opening)

    def _step_again(self) -> None:
        self._strategy.step([self._run])

    def _steps(self, choices: Sequence[PredictedToken], *, ended: bool) -> GenerationSteps:
        tokens = [
            Token(
                choice.token,
                self._tokens.texts[choice.token],
                self._tokens.starts_word[choice.token],
                choice.attention,
                choice.log_probability,
            )
            for choice in choices
        ]
        end = tokens.pop() if ended else None
        return GenerationSteps(tokens, end, HopTimings())


async def record(
    encoder: EncoderModel,
    decoder: LoadedDecoder,
    model: types_pb2.ModelDescription,
    config: pb.StreamingConfig,
    audio: bytes,
) -> tuple[Tape, list[str]]:
    """Translate a recording in this process."""
    options, tape, texts = stream_options(config, model), Tape(), list[str]()
    rate_hertz = options.audio_format.sample_rate_hz
    buffer = AudioBuffer(options.audio_format, len(audio))

    async def emit(event: Event) -> None:
        if isinstance(event, WordsReleased):
            texts.extend(item.text for item in event.items)

    for begin in range(0, len(audio), 2 * rate_hertz):
        await buffer.append(audio[begin : begin + 2 * rate_hertz], 0.0)
    await buffer.end()
    session = TranslationSession(
        options,
        _LocalEncoder(encoder, tape, rate_hertz),
        _LocalDecoder(decoder, tape, options),
        buffer,
        emit,
        time.perf_counter,
    )
    with torch.inference_mode():
        await session.run()
    return tape, texts
