"""A session with the encoder or the decoder that outlives the replica it runs on.

A lost replica's work is done again on another: the encoder is sent the utterance's audio, the
decoder the running generation. See docs/adr/0008. Their answers are turned into the session's own
types here and nowhere else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import encoder_service_pb2 as encoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.policies.base import Token
from earvoice.policy.backend import Encoded, GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.call import BackendCall, BackendTimeouts, is_loss
from earvoice.policy.backends.replicas import Replica, Replicas
from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.timeline import HopTimings
from earvoice.policy.wire.config import ENCODING_NUMBERS
from earvoice.runtime.errors import BackendUnavailableError, EarvoiceError

_LOG = logging.getLogger("earvoice.policy.backends")

MAX_REPLAYS_WITHOUT_ANSWER = 2
"""A recording that crashes a replica must not crash all of them."""

PIECE_BYTES = 8 * 1024 * 1024
"""Most audio in one message; the transport takes twice as much."""

Result = TypeVar("Result")
Answer = TypeVar("Answer", bound=Encoded | GenerationSteps | GenerationEnd)


class ReplayBudget:
    """Counts an utterance's losses that no answer has followed yet, over both services.

    A replica that answers the repeated request has survived the audio sent before the loss.
    """

    def __init__(self, totals: Counter[str]) -> None:
        self._totals = totals
        self._utterance = 0
        self._losses: Counter[str] = Counter()

    def begin(self, utterance: int) -> None:
        if utterance != self._utterance:
            self._losses.clear()
        self._utterance = utterance

    def spend(self, service: str) -> None:
        losses = self._losses.total()
        if losses >= MAX_REPLAYS_WITHOUT_ANSWER:
            raise BackendUnavailableError(
                f"the {service} is gone, after {losses} others that this utterance was sent to: "
                "its audio may be what ends them",
                replays=str(losses),
            )
        self._losses[service] += 1

    def note_answer(self, service: str) -> None:
        del self._losses[service]

    def note_replay(self, service: str) -> None:
        self._totals[service] += 1


@dataclass(frozen=True)
class SessionTerms:
    options: StreamOptions
    model_hash: str
    session_id: str
    budget: ReplayBudget
    timeouts: BackendTimeouts
    loop_lag_s: Callable[[], float]
    traceparents: Mapping[str, str]


class ReplicaSession:
    """A session on one replica at a time.

    Args:
        opening: the request that opens it, on whichever replica.
    """

    def __init__(self, replicas: Replicas, terms: SessionTerms, opening: Any) -> None:
        self._replicas = replicas
        self._terms = terms
        self._opening = opening
        self._place: tuple[Replica, BackendCall] | None = None
        self.replay_count = 0

    async def open(self) -> None:
        self._place = await self._replicas.open(
            self._open_on, self._terms.model_hash, self._terms.timeouts.opening_s
        )

    async def close(self) -> None:
        """End the session and wait until the replica has, too."""
        if self._place is None:
            return
        replica, call = self._place
        try:
            await call.close()
        except EarvoiceError as error:
            if not is_loss(error):
                raise
            _LOG.info("replica lost at the end", extra=self._extra(replica))
        self.cancel()

    def cancel(self) -> None:
        if self._place is not None:
            replica, call = self._place
            call.cancel()
            replica.note_session_left()
            self._place = None

    @property
    def _call(self) -> BackendCall:
        if self._place is None:
            raise BackendUnavailableError(f"the session has no {self._replicas.kind.name}")
        return self._place[1]

    async def _replace(self, error: EarvoiceError) -> None:
        """Open the session on another replica after a failure."""
        if not is_loss(error):
            raise error
        lost = self._place[0] if self._place is not None else None
        self.cancel()
        if lost is not None:
            self._replicas.mark_lost(lost)
        _LOG.warning("replica lost", extra=self._extra(lost) | {"error": error.message})
        service = self._replicas.kind.name
        self._terms.budget.spend(service)
        self._place = replica, _ = await self._replicas.open(
            self._open_on,
            self._terms.model_hash,
            self._terms.timeouts.replacement_s,
            lost,
            asks_again=True,
        )
        self.replay_count += 1
        self._terms.budget.note_replay(service)
        _LOG.info("session goes on", extra=self._extra(replica))

    async def _move(self) -> None:
        """Leave a replica that is no longer ready for one that is.

        Nothing is lost: it is called where the replica holds nothing that is still needed.
        """
        if self._place is None or self._place[0].is_ready:
            return
        if not self._replicas.ready(self._terms.model_hash):
            return
        try:
            moved = await self._replicas.open(self._open_on, self._terms.model_hash, 0.0)
        except EarvoiceError as error:
            # The session stays where it is, for as long as the replica lets it.
            told = self._extra(self._place[0]) | {"error": error.message}
            _LOG.info("session not moved", extra=told)
            return
        self.cancel()
        self._place = moved
        _LOG.info("session moved", extra=self._extra(moved[0]))

    async def _open_on(self, replica: Replica) -> tuple[Replica, BackendCall]:
        terms = self._terms
        call = BackendCall(replica, terms.traceparents, terms.loop_lag_s, terms.timeouts)
        replica.session_count += 1
        try:
            await call.ask(self._opening)
        except BaseException:
            call.cancel()
            replica.session_count -= 1
            raise
        return replica, call

    def _extra(self, replica: Replica | None) -> dict[str, str]:
        return {
            "session_id": self._terms.session_id,
            "backend": self._replicas.kind.name,
            "address": replica.address if replica is not None else "",
        }


class EncoderSession(ReplicaSession):
    """Keeps the utterance's audio, and sends all of it to another replica when one is lost.

    An answer is a function of the model, the format and the samples since the utterance's start,
    so the other replica's answer equals the one that was lost.
    """

    def __init__(self, replicas: Replicas, terms: SessionTerms) -> None:
        audio, options = terms.options.audio_format, terms.options
        opening = encoder_pb.EncodeOpen(
            audio_format=types_pb2.AudioFormat(
                encoding=ENCODING_NUMBERS[audio.encoding],
                sample_rate_hertz=audio.sample_rate_hz,
                channel_count=audio.channel_count,
            ),
            model_hash=terms.model_hash,
            session_id=terms.session_id,
            # Guards and `min_confidence` read it, whether the client wants it or not.
            enable_source_transcript=True,
            enable_partial_transcript=options.confidence.compares,
            # Without speech the guards allow no commit, whatever the network would compute.
            skip_silence=options.uses_guards,
        )
        super().__init__(replicas, terms, encoder_pb.EncodeRequest(open=opening))
        self._frame_bytes = audio.frame_bytes
        self._begun = encoder_pb.EncodeReset()
        self._revision = 0
        # The requests' own audio, not copied again.
        self._pieces: list[bytes] = []

    async def reset(self, utterance: int, start_sample: int) -> None:
        """Forget the utterance and begin another; a draining replica is left at this point."""
        self._begun = encoder_pb.EncodeReset(utterance=utterance, start_sample=start_sample)
        self._pieces.clear()
        self._terms.budget.begin(utterance)
        await self._move()
        try:
            await self._begin()
        except EarvoiceError as error:
            await self._run_elsewhere(error, self._begin)

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._pieces.append(audio)
        sent_s = time.perf_counter()

        async def replay() -> Encoded:
            await self._begin()
            return await self._encode(b"".join(self._pieces), end_sample)

        try:
            return await self._encode(audio, end_sample)
        except EarvoiceError as error:
            return _lasting_since(await self._run_elsewhere(error, replay), sent_s)

    async def _begin(self) -> None:
        self._revision = 0
        await self._call.ask(encoder_pb.EncodeRequest(reset=self._begun))

    async def _encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        """Each piece but the last costs an unneeded computation; most audio is a single piece."""
        size, before = PIECE_BYTES // self._frame_bytes * self._frame_bytes, HopTimings()
        while len(audio) > PIECE_BYTES:
            before += (await self._encode_piece(audio[:size])).timings
            audio = audio[size:]
        encoded = await self._encode_piece(audio, end_sample)
        return dataclasses.replace(encoded, timings=before + encoded.timings)

    async def _encode_piece(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._revision += 1
        request = encoder_pb.EncodeRequest()
        command = request.audio if end_sample is None else request.finish
        command.revision, command.data = self._revision, audio
        if end_sample is not None:
            request.finish.end_sample = end_sample
        clock = self._call.clock()
        answer = await self._call.ask(request)
        timings = clock(answer.timings)
        return Encoded(answer.encoded.states, evidence_of(answer.encoded), timings)

    async def _run_elsewhere(
        self, error: EarvoiceError, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Do work that has failed here on another replica, and return its result.

        Args:
            work: starts from scratch on a newly opened session.

        Raises:
            EarvoiceError: see `_replace`.
        """
        while True:
            await self._replace(error)
            try:
                result = await work()
            except EarvoiceError as another:
                error = another
            else:
                self._terms.budget.note_answer(self._replicas.kind.name)
                return result


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
        partial_transcript=heard.partial_transcript,
    )


class DecoderSession(ReplicaSession):
    """Repeats a generation on another replica when one is lost.

    States and prefix come with each request, so a replica may be left between any two requests.
    """

    def __init__(self, replicas: Replicas, terms: SessionTerms) -> None:
        opening = decoder_pb.DecodeOpen(
            model_hash=terms.model_hash,
            target_language_code=terms.options.target_language_code,
            attention_layer=terms.options.attention_layer,
            attention_heads=terms.options.attention_heads,
            beam_size=terms.options.beam_size,
            session_id=terms.session_id,
        )
        super().__init__(replicas, terms, decoder_pb.DecodeRequest(open=opening))
        self._generation_id = 0
        self._states_sent: tuple[BackendCall | None, object] = (None, None)
        self._is_halted = False
        # Asyncio keeps no strong reference to a task.
        self._halting: asyncio.Task[None] | None = None

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncGenerator[GenerationSteps | GenerationEnd, None]:
        """Decode; yields steps, then one end, which is missing if it is lost after a halt.

        Another replica begins again, and its first answer says so; the tokens found before begin
        its draft, so they cost one pass. Nothing of a generation is committed while it is read.
        """
        await self._move()
        self._is_halted = False
        sent_s = time.perf_counter()
        asked = request
        # Ends of sentence included.
        found: list[int] = []
        lost: EarvoiceError | None = None
        while True:
            if lost is not None:
                await self._replace(lost)
                asked = dataclasses.replace(request, draft=draft_after(found, request))
            try:
                async with aclosing(self._answers(asked)) as answers:
                    async for answer in answers:
                        if isinstance(answer, GenerationEnd):
                            self._terms.budget.note_answer(self._replicas.kind.name)
                        else:
                            ends = [answer.end] if answer.end is not None else []
                            ids = [token.token_id for token in (*answer.tokens, *ends)]
                            found = ids if answer.restarts else found + ids
                        yield answer if lost is None else _lasting_since(answer, sent_s)
            except EarvoiceError as error:
                if self._is_halted and is_loss(error):
                    # Its tokens have arrived; the next request finds out that the replica is gone.
                    return
                lost = error
            else:
                return

    def halt(self) -> None:
        """Ask the running generation to stop; its end still comes."""
        self._is_halted = True
        # Reading goes on meanwhile: a reader that waits for its own writes can lock up both ends.
        self._halting = asyncio.create_task(self._halt(self._generation_id))

    async def keep_alive(self) -> None:
        """Keep the decoder from taking a long silence for a caller that is gone."""
        try:
            # No generation has this number, so that halting it is a sign of life and nothing more.
            await self._call.write(decoder_pb.DecodeRequest(halt=decoder_pb.Halt()))
        except EarvoiceError as error:
            # Opening a session is a sign of life, too.
            await self._replace(error)

    async def _halt(self, generation_id: int) -> None:
        halt = decoder_pb.Halt(generation_id=generation_id)
        # If it fails, so does the next read or write, which handles the error.
        with suppress(EarvoiceError):
            await self._call.write(decoder_pb.DecodeRequest(halt=halt))

    async def _answers(
        self, request: GenerationRequest
    ) -> AsyncGenerator[GenerationSteps | GenerationEnd, None]:
        """Decode on this replica; a beam's steps all come at once."""
        call = self._call
        self._generation_id += 1
        first_index = index = len(request.prefix)
        clock = call.clock()
        states = request.states
        if not isinstance(states, types_pb2.States):
            raise TypeError(f"states are {type(states).__name__}, not the encoder's message")
        sent_on, sent = self._states_sent
        if sent_on is not call or sent is not states:
            await call.write(decoder_pb.DecodeRequest(states=states))
            self._states_sent = call, states
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
        await call.write(decoder_pb.DecodeRequest(generate=command))
        while True:
            answer: decoder_pb.DecodeResponse = await call.read()
            # An answer of an unknown kind is skipped: it has no generation id.
            told: Any = getattr(answer, answer.WhichOneof("answer") or "done")
            # Answers on their way when an earlier generation was halted still come.
            if getattr(told, "generation_id", 0) != self._generation_id:
                continue
            timings = clock(told.timings)
            if isinstance(told, decoder_pb.GenerationDone):
                hit_limit = told.reason == decoder_pb.GenerationDone.REASON_LIMIT
                yield GenerationEnd(hit_limit, timings)
                return
            best, alternatives = told, list[list[int]]()
            if isinstance(told, decoder_pb.Beam):
                best = told.hypotheses[0]
                if request.all_hypotheses:
                    alternatives = [
                        [s.token for s in _following(item.steps, index) if not s.end_of_sequence]
                        for item in told.hypotheses
                    ]
            tokens, end = _read_steps(best.steps, index)
            rows = [list(row.weights) for row in told.prefix_attention]
            restarts = index == first_index
            written, written_end = _read_steps(told.source, 0)
            source = [*written, written_end] if written_end else written
            yield GenerationSteps(tokens, end, timings, alternatives, rows, restarts, source)
            index += len(tokens)


def draft_after(found: Sequence[int], request: GenerationRequest) -> Sequence[int]:
    """Return the draft for another replica: the tokens found, then what the old draft adds."""
    if request.beam_size > 1:
        return request.draft
    expected = list(request.draft)
    rest = expected[len(found) :] if expected[: len(found)] == found else ()
    return [*found, *rest][: request.max_new_tokens]


def _read_steps(
    steps: Iterable[decoder_pb.Step], expected_index: int
) -> tuple[list[Token], Token | None]:
    """Return tokens and end of sentence."""
    tokens, end = [], None
    for step in _following(steps, expected_index):
        token = Token(
            step.token, step.text, step.starts_word, list(step.attention), step.log_probability
        )
        if step.end_of_sequence:
            end = token
        else:
            tokens.append(token)
    return tokens, end


def _following(steps: Iterable[decoder_pb.Step], expected_index: int) -> Iterator[decoder_pb.Step]:
    """Check append-only where it could break: steps must follow the prefix one by one."""
    for index, step in enumerate(steps, expected_index):
        if step.index != index:
            raise RuntimeError(f"the decoder sent step {step.index}, expected {index}")
        yield step


def _lasting_since(answer: Answer, sent_s: float) -> Answer:
    """Time an answer from when its request was first sent, on `time.perf_counter`.

    Time lost with a replica counts as network.
    """
    round_trip_ms = (time.perf_counter() - sent_s) * 1000
    timings = dataclasses.replace(answer.timings, round_trip_ms=round_trip_ms)
    return dataclasses.replace(answer, timings=timings)
