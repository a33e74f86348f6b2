"""An encoder session that outlives the replica it runs on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable

from earvoice.policy.backend import Encoded
from earvoice.policy.backends.encoder_stream import EncoderStream
from earvoice.policy.backends.replay_budget import ReplayBudget
from earvoice.policy.backends.request_clock import lasting_since
from earvoice.policy.backends.seat import Seat
from earvoice.runtime.errors import EarvoiceError

PIECE_BYTES = 8 * 1024 * 1024
"""Most audio of one message; the transport takes twice as much."""

Ask = Callable[[EncoderStream, bytes], Awaitable[Encoded]]


class ReplayingEncoder:
    """Keeps the utterance's audio, and sends all of it to another replica when one is lost.

    An answer is a function of the model, the format and the samples since the utterance's start,
    so the other replica's is the one that was lost.

    Args:
        seat: the session's place.
        budget: is told where the utterance begins, and how much of it has been sent.
        frame_bytes: bytes of one frame: bytes per sample times channels.
    """

    def __init__(self, seat: Seat[EncoderStream], budget: ReplayBudget, frame_bytes: int) -> None:
        self._seat = seat
        self._budget = budget
        self._frame_bytes = frame_bytes
        self._utterance = 0
        self._start_sample = 0
        # What the requests held, not copied again.
        self._pieces: list[bytes] = []

    @property
    def replay_count(self) -> int:
        """How often the session went on elsewhere after a loss."""
        return self._seat.replay_count

    async def encode(self, audio: bytes) -> Encoded:
        """Add audio to the utterance and return the next revision."""
        return await self._encoded(audio, lambda stream, data: stream.encode(data))

    async def finish(self, audio: bytes, end_sample: int) -> Encoded:
        """Add the rest, end the utterance and return the last revision."""
        return await self._encoded(audio, lambda stream, data: stream.finish(data, end_sample))

    async def reset(self, utterance: int, start_sample: int) -> None:
        """Forget the utterance and begin another; a replica that drains is left here."""
        self._utterance, self._start_sample = utterance, start_sample
        self._pieces.clear()
        self._budget.begin(utterance, start_sample)
        await self._seat.move()
        try:
            await self._begin()
        except EarvoiceError as error:
            await self._seat.run_elsewhere(error, self._begin)

    async def _begin(self) -> None:
        await self._seat.stream.reset(self._utterance, self._start_sample)

    async def _encoded(self, audio: bytes, ask: Ask) -> Encoded:
        self._pieces.append(audio)
        self._budget.sent_sample += len(audio) // self._frame_bytes
        sent_s = time.perf_counter()
        try:
            return await ask(self._seat.stream, audio)
        except EarvoiceError as error:
            encoded = await self._seat.run_elsewhere(error, lambda: self._replay(ask))
        return dataclasses.replace(encoded, timings=lasting_since(encoded.timings, sent_s))

    async def _replay(self, ask: Ask) -> Encoded:
        await self._begin()
        audio = b"".join(self._pieces)
        # Each piece but the last costs a computation that nobody asked for; most audio is one.
        while len(audio) > PIECE_BYTES:
            first = PIECE_BYTES // self._frame_bytes * self._frame_bytes
            await self._seat.stream.encode(audio[:first])
            audio = audio[first:]
        return await ask(self._seat.stream, audio)
