"""A session with the encoder or the decoder that outlives the replica it runs on.

What a lost replica had to do is done again on another: the encoder is sent the utterance's audio,
the decoder the running generation. See docs/adr/0008.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from earvoice.policies.base import Token, longest_common_prefix_tokens
from earvoice.policy.backend import Encoded, GenerationEnd, GenerationRequest, GenerationSteps
from earvoice.policy.backends.call import BackendCall, BackendTimeouts, is_loss
from earvoice.policy.backends.replicas import Replica, Replicas
from earvoice.policy.backends.streams import DecoderStream, EncoderStream
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import BackendUnavailableError, EarvoiceError

_LOG = logging.getLogger("earvoice.policy.backends")

MAX_REPLAYS_WITHOUT_ANSWER = 2
"""A recording that crashes a replica must not crash all of them."""

PIECE_BYTES = 8 * 1024 * 1024
"""Most audio of one message; the transport takes twice as much."""

Stream = TypeVar("Stream", bound=EncoderStream | DecoderStream)
Result = TypeVar("Result")
Answer = TypeVar("Answer", bound=Encoded | GenerationSteps | GenerationEnd)


class ReplayBudget:
    """Counts the losses of an utterance that no answer followed, both services together.

    Who answers when asked again has survived the audio that was there at the loss.
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


class ReplicaSession(Generic[Stream]):
    """A session on one replica at a time."""

    def __init__(
        self,
        replicas: Replicas,
        terms: SessionTerms,
        stream_class: Callable[[BackendCall], Stream],
    ) -> None:
        self._replicas = replicas
        self._terms = terms
        self._stream_class = stream_class
        self._place: tuple[Replica, Stream] | None = None
        self.replay_count = 0

    async def open(self) -> None:
        self._place = await self._replicas.open(
            self._open_on, self._terms.model_hash, self._terms.timeouts.opening_s
        )

    async def close(self) -> None:
        """End the session and wait until the replica has, too."""
        if self._place is None:
            return
        replica, stream = self._place
        try:
            await stream.call.close()
        except EarvoiceError as error:
            if not is_loss(error):
                raise
            _LOG.info("replica lost at the end", extra=self._extra(replica))
        self.cancel()

    def cancel(self) -> None:
        if self._place is not None:
            replica, stream = self._place
            stream.call.cancel()
            replica.note_session_left()
            self._place = None

    @property
    def _stream(self) -> Stream:
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

    async def _run_elsewhere(
        self, error: EarvoiceError, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Return the result of work that has failed here, done on another replica.

        Args:
            work: begins from nothing on a session just opened.

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

    async def _move(self) -> None:
        """Leave a replica that is no longer ready for one that is; nothing is lost by that.

        Called where the replica holds nothing that is still needed.
        """
        if self._place is None or self._place[0].is_ready:
            return
        if not self._replicas.ready(self._terms.model_hash):
            return
        try:
            moved = await self._replicas.open(self._open_on, self._terms.model_hash, 0.0)
        except EarvoiceError as error:
            # It stays where it is, for as long as that lets it.
            told = self._extra(self._place[0]) | {"error": error.message}
            _LOG.info("session not moved", extra=told)
            return
        self.cancel()
        self._place = moved
        _LOG.info("session moved", extra=self._extra(moved[0]))

    async def _open_on(self, replica: Replica) -> tuple[Replica, Stream]:
        terms = self._terms
        call = BackendCall(replica, terms.traceparents, terms.loop_lag_s, terms.timeouts)
        stream = self._stream_class(call)
        replica.session_count += 1
        try:
            await stream.open(terms.options, terms.model_hash, terms.session_id)
        except BaseException:
            call.cancel()
            replica.session_count -= 1
            raise
        return replica, stream

    def _extra(self, replica: Replica | None) -> dict[str, str]:
        return {
            "session_id": self._terms.session_id,
            "backend": self._replicas.kind.name,
            "address": replica.address if replica is not None else "",
        }


class EncoderSession(ReplicaSession[EncoderStream]):
    """Keeps the utterance's audio, and sends all of it to another replica when one is lost.

    An answer is a function of the model, the format and the samples since the utterance's start,
    so the other replica's is the one that was lost.
    """

    def __init__(self, replicas: Replicas, terms: SessionTerms) -> None:
        super().__init__(replicas, terms, EncoderStream)
        self._frame_bytes = terms.options.audio_format.frame_bytes
        self._utterance = 0
        self._start_sample = 0
        # What the requests held, not copied again.
        self._pieces: list[bytes] = []

    async def reset(self, utterance: int, start_sample: int) -> None:
        """Forget the utterance and begin another; a replica that drains is left here."""
        self._utterance, self._start_sample = utterance, start_sample
        self._pieces.clear()
        self._terms.budget.begin(utterance)
        await self._move()
        try:
            await self._begin()
        except EarvoiceError as error:
            await self._run_elsewhere(error, self._begin)

    async def _begin(self) -> None:
        await self._stream.reset(self._utterance, self._start_sample)

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._pieces.append(audio)
        sent_s = time.perf_counter()

        async def replay() -> Encoded:
            await self._begin()
            data = b"".join(self._pieces)
            # Each piece but the last costs a computation nobody asked for; most audio is one.
            while len(data) > PIECE_BYTES:
                first = PIECE_BYTES // self._frame_bytes * self._frame_bytes
                await self._stream.encode(data[:first])
                data = data[first:]
            return await self._stream.encode(data, end_sample)

        try:
            return await self._stream.encode(audio, end_sample)
        except EarvoiceError as error:
            return _lasting_since(await self._run_elsewhere(error, replay), sent_s)


class DecoderSession(ReplicaSession[DecoderStream]):
    """Asks another replica for the rest of a generation when one is lost.

    States and prefix come with each request, so a decoder may be left between any two of them.
    """

    def __init__(self, replicas: Replicas, terms: SessionTerms) -> None:
        super().__init__(replicas, terms, DecoderStream)
        self._is_halted = False

    async def generate(
        self, request: GenerationRequest
    ) -> AsyncGenerator[GenerationSteps | GenerationEnd, None]:
        """Decode; yields steps, then one end, which is missing where it is lost after a halt."""
        await self._move()
        self._is_halted = False
        sent_s = time.perf_counter()
        splice = AnswerSplice(request)
        lost: EarvoiceError | None = None
        while True:
            if lost is not None:
                await self._replace(lost)
            try:
                async with aclosing(self._stream.generate(splice.begin())) as answers:
                    async for answer in answers:
                        if isinstance(answer, GenerationEnd):
                            self._terms.budget.note_answer(self._replicas.kind.name)
                        joined = splice.joined(answer)
                        if joined is not None:
                            yield joined if lost is None else _lasting_since(joined, sent_s)
            except EarvoiceError as error:
                if self._is_halted and is_loss(error):
                    # Its tokens are here; the next request finds out that the replica is gone.
                    return
                lost = error
            else:
                return

    def halt(self) -> None:
        self._is_halted = True
        self._stream.halt()

    async def stay(self) -> None:
        try:
            await self._stream.stay()
        except EarvoiceError as error:
            # To open a session is a sign of life, too.
            await self._replace(error)


class AnswerSplice:
    """Joins the answers of several replicas to one request into one generation.

    What was handed on of a generation is the beginning of the other replica's draft, so it costs
    one pass, and is skipped in its answer. Where the other answers otherwise (a near tie may fall
    out differently on another machine), the generation is given anew from its beginning, marked as
    such: nothing of it is committed while it is read.
    """

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        # Ends of sentence included.
        self._handed: list[Token] = []
        self._attempt: list[Token] = []
        self._attempt_count = 0

    def begin(self) -> GenerationRequest:
        """Return what to ask the next replica for."""
        self._attempt = []
        self._attempt_count += 1
        if self._attempt_count == 1 or self._request.beam_size > 1:
            return self._request
        handed = _ids(self._handed)
        expected = self._request.draft
        rest = expected[len(handed) :] if list(expected[: len(handed)]) == handed else ()
        draft = (*handed, *rest)[: self._request.max_new_tokens]
        return dataclasses.replace(self._request, draft=draft)

    def joined(
        self, answer: GenerationSteps | GenerationEnd
    ) -> GenerationSteps | GenerationEnd | None:
        """Return what is new in a replica's answer; None for nothing."""
        first = self._attempt_count == 1
        if isinstance(answer, GenerationEnd):
            if first:
                return answer
            # The draft that counts is the one that was asked for.
            accepted = longest_common_prefix_tokens([self._request.draft, _ids(self._attempt)])
            return dataclasses.replace(answer, draft_accepted_count=accepted)
        fresh = [*answer.tokens, *([answer.end] if answer.end is not None else [])]
        if first:
            self._handed += fresh
            return answer
        known = self._handed[len(self._attempt) :]
        self._attempt += fresh
        if _ids(fresh[: len(known)]) != _ids(known[: len(fresh)]):
            self._handed = [*self._attempt]
            ended = answer.end is not None
            tokens = self._attempt[:-1] if ended else self._attempt
            return dataclasses.replace(answer, tokens=[*tokens], restarts=True)
        if known and len(fresh) <= len(known):
            return None
        self._handed += fresh[len(known) :]
        return dataclasses.replace(answer, tokens=answer.tokens[len(known) :])


def _ids(tokens: Sequence[Token]) -> list[int]:
    return [token.token_id for token in tokens]


def _lasting_since(answer: Answer, sent_s: float) -> Answer:
    """Time an answer from its request's first sending, on `time.perf_counter`.

    What is lost counts as network.
    """
    round_trip_ms = (time.perf_counter() - sent_s) * 1000
    timings = dataclasses.replace(answer.timings, round_trip_ms=round_trip_ms)
    return dataclasses.replace(answer, timings=timings)
