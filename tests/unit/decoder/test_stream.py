"""How long a session waits for its caller, and how it ends."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from earvoice.decoder.command import Command
from earvoice.decoder.event import Event, Opened
from earvoice.decoder.generation_trace import GenerationTrace
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.session import DecodeSession, SessionBounds
from earvoice.decoder.stream import DecodeStream, Patience
from earvoice.runtime.errors import EarvoiceError, IdleError, OutOfOrderError, SlowReaderError
from tests.unit.decoder.scripted import NotingEngine, model, opening, states


def stream(idle_s: float = 60, slow_reader_s: float = 60) -> DecodeStream:
    """A stream over an engine that only notes."""
    engine = NotingEngine()
    outbox = Outbox(8, engine.wake)
    session = DecodeSession(model(), SessionBounds(10, 20), engine, outbox)
    return DecodeStream(session, outbox, Patience(idle_s, slow_reader_s), GenerationTrace(None))


async def commands(*given: Command, endless: bool = False) -> AsyncIterator[Command]:
    """The commands, then half-close, or silence."""
    for command in given:
        yield command
    if endless:
        await asyncio.Event().wait()


async def failure_of(
    served: DecodeStream, given: AsyncIterator[Command], *, reads: bool = True
) -> EarvoiceError:
    """What ends the stream, which must be one error of ours."""

    async def send(event: Event) -> None:
        if not reads:
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await served.run(given, send)
    (error,) = caught.value.exceptions
    assert isinstance(error, EarvoiceError)
    return error


async def test_half_close_ends_the_stream() -> None:
    """Without a generation, nothing is waited for."""
    sent: list[Event] = []

    async def send(event: Event) -> None:
        sent.append(event)

    await stream().run(commands(opening(), states()), send)
    assert sent == [Opened()]


async def test_silent_caller_is_ended() -> None:
    """No command for too long is IDLE."""
    error = await failure_of(stream(idle_s=0.01), commands(opening(), endless=True))
    assert isinstance(error, IdleError)


async def test_caller_that_does_not_read_is_ended() -> None:
    """An answer that cannot be written for too long is SLOW_READER."""
    served = stream(slow_reader_s=0.01)
    error = await failure_of(served, commands(opening(), endless=True), reads=False)
    assert isinstance(error, SlowReaderError)


async def test_broken_protocol_is_told_after_the_answers_before_it() -> None:
    """A second open ends the stream with its status."""
    error = await failure_of(stream(), commands(opening(), opening()))
    assert isinstance(error, OutOfOrderError)


async def test_end_is_logged_once_with_its_status(caplog: pytest.LogCaptureFixture) -> None:
    """One line a session, with its id and why it ended."""
    with caplog.at_level(logging.INFO, "earvoice.decoder"):
        await failure_of(stream(idle_s=0.01), commands(opening(), endless=True))
    (line,) = [record for record in caplog.records if record.name == "earvoice.decoder"]
    assert (line.__dict__["session_id"], line.__dict__["status"]) == ("s", "IDLE")
