"""The encoder's and the decoder's replicas, and sessions on one of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from earvoice.policy.backend_target import parse_target
from earvoice.policy.backends.access import BackendAccess
from earvoice.policy.backends.call import BackendCall, MessageTrace
from earvoice.policy.backends.decoder_stream import DecoderStream
from earvoice.policy.backends.encoder_stream import EncoderStream
from earvoice.policy.backends.fleet import ModelFleet
from earvoice.policy.backends.kind import DECODER, ENCODER
from earvoice.policy.backends.loss import is_refusal
from earvoice.policy.backends.patience import Patience
from earvoice.policy.backends.pool import ReplicaPool
from earvoice.policy.backends.replay_budget import ReplayBudget
from earvoice.policy.backends.replaying_decoder import ReplayingDecoder
from earvoice.policy.backends.replaying_encoder import ReplayingEncoder
from earvoice.policy.backends.replica import Replica
from earvoice.policy.backends.seat import Seat, SessionOpening
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.errors import EarvoiceError

Stream = TypeVar("Stream", EncoderStream, DecoderStream)


class Backends:
    """The encoder's and the decoder's replicas.

    Args:
        encoder_target: see `parse_target`.
        decoder_target: the same.
        starved_s: see `RequestClock`.
        patience: with replicas.
        access: how we are let in.

    Attributes:
        fleet: the models that both serve.
        replays: how often a session went on elsewhere because a replica was lost, by service.
        refused: sessions that no replica took, by the error's reason.
    """

    def __init__(
        self,
        encoder_target: str,
        decoder_target: str,
        starved_s: Callable[[], float] = lambda: 0.0,
        patience: Patience | None = None,
        access: BackendAccess | None = None,
    ) -> None:
        self._starved_s = starved_s
        self._patience = patience or Patience()
        access = access or BackendAccess()
        self._encoders = ReplicaPool(ENCODER, parse_target(encoder_target), access, self._refresh)
        self._decoders = ReplicaPool(DECODER, parse_target(decoder_target), access, self._refresh)
        self._running: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.fleet = ModelFleet(self._encoders, self._decoders)
        # Zeros too: an alert sees no increase in a series that begins with its first replay.
        self.replays: Counter[str] = Counter({ENCODER.name: 0, DECODER.name: 0})
        self.refused: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to look for replicas and to follow their health."""
        self._running = asyncio.create_task(self._run())

    async def watch(self) -> None:
        """Return never; raise what ends the watching of replicas unexpectedly."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def wait_until_ready(self) -> None:
        """Return once there is an encoder and a decoder of one model."""
        while not self.fleet.models:
            await self.changed()

    async def changed(self) -> None:
        """Return when a replica becomes ready, or is no longer."""
        await self._changed.wait()

    def ready_counts(self) -> dict[str, int]:
        """Return how many replicas sessions may go to, by service."""
        return {pool.kind.name: len(pool.ready()) for pool in (self._encoders, self._decoders)}

    @asynccontextmanager
    async def open(
        self, options: StreamOptions, model_hash: str, session_id: str, trace: MessageTrace
    ) -> AsyncIterator[tuple[ReplayingEncoder, ReplayingDecoder]]:
        """Open a session on both; their messages go with the trace that is set when they leave.

        Args:
            options: what the stream asked for.
            model_hash: of the model that it stays with.
            session_id: as logs have it.
            trace: that messages belong to.

        Raises:
            EarvoiceError: one of them refused, or is gone.
        """
        session, budget = (
            SessionOpening(options, model_hash, session_id),
            ReplayBudget(self.replays),
        )
        encoder_seat = self._seat(
            self._encoders, EncoderStream, session, budget, lambda: trace.encoder
        )
        decoder_seat = self._seat(
            self._decoders, DecoderStream, session, budget, lambda: trace.decoder
        )
        try:
            await self._take(encoder_seat, decoder_seat)
            frame_bytes = options.audio_format.frame_bytes
            yield (
                ReplayingEncoder(encoder_seat, budget, frame_bytes),
                ReplayingDecoder(decoder_seat),
            )
            # Their sessions are free again before ours is.
            await encoder_seat.leave()
            await decoder_seat.leave()
        finally:
            encoder_seat.cancel()
            decoder_seat.cancel()

    async def close(self) -> None:
        """Close the channels."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._encoders.run())
            group.create_task(self._decoders.run())

    async def _take(self, *seats: Seat[EncoderStream] | Seat[DecoderStream]) -> None:
        try:
            for seat in seats:
                await seat.take()
        except EarvoiceError as error:
            if is_refusal(error):
                self.refused[error.reason] += 1
            raise

    def _refresh(self) -> None:
        self.fleet.refresh()
        self._changed.set()
        self._changed = asyncio.Event()

    def _seat(
        self,
        pool: ReplicaPool,
        stream_class: type[Stream],
        session: SessionOpening,
        budget: ReplayBudget,
        traceparent: Callable[[], str],
    ) -> Seat[Stream]:
        def make_call(replica: Replica) -> BackendCall:
            return BackendCall(replica, traceparent, self._starved_s, self._patience)

        async def open_stream(call: BackendCall) -> Stream:
            stream = stream_class(call)
            await stream.open(session.options, session.model_hash, session.session_id)
            return stream

        return Seat(pool, session, make_call, open_stream, budget, self._patience)
