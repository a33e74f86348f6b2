"""How a session goes on, waits for its caller, and ends."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.decoder.generation import EndReason, Outbox
from earvoice.decoder.session import DecodeSession
from earvoice.decoder.stream import DecodeStream
from earvoice.runtime.errors import EarvoiceError, IdleError, OutOfOrderError, SlowReaderError
from tests.fakes import NotingEngine, served_model
from tests.requests import generate, opening, states
from tests.until import until


class Requests:
    """The requests, then half-close; one that is an error is raised, and then it goes on."""

    def __init__(self, *given: pb.DecodeRequest | Exception) -> None:
        self._given = list(given)

    def __aiter__(self) -> AsyncIterator[pb.DecodeRequest]:
        return self

    async def __anext__(self) -> pb.DecodeRequest:
        if not self._given:
            raise StopAsyncIteration
        request = self._given.pop(0)
        if isinstance(request, Exception):
            raise request
        return request


def stream(engine: NotingEngine | None = None) -> DecodeStream:
    engine = engine or NotingEngine()
    outbox = Outbox(8, engine.wake)
    session = DecodeSession(served_model(), engine, outbox, max_states=10, max_tokens=20)
    return DecodeStream(session, outbox, served_model())


async def serve(
    served: DecodeStream,
    *given: pb.DecodeRequest | Exception,
    sent: list[pb.DecodeResponse] | None = None,
) -> list[pb.DecodeResponse]:
    """What was sent; also in `sent`, where the stream ends with an error."""
    sent = [] if sent is None else sent

    async def send(response: pb.DecodeResponse) -> None:
        sent.append(response)

    await served.run(opening(), Requests(*given), send)
    return sent


async def failure_of(served: DecodeStream, *given: pb.DecodeRequest | Exception) -> EarvoiceError:
    """What ends the stream, which must be one error of ours."""
    with pytest.raises(ExceptionGroup) as caught:
        await serve(served, *given)
    (error,) = caught.value.exceptions
    assert isinstance(error, EarvoiceError)
    return error


async def test_half_close_ends_the_stream() -> None:
    """Without a generation, nothing is waited for."""
    (opened,) = await serve(stream(), states())
    assert opened.opened.model == served_model().description


async def test_silent_caller_is_ended() -> None:
    """No request for too long is IDLE."""
    error = await failure_of(stream(), IdleError("no message came for 1 s"))
    assert isinstance(error, IdleError)


async def test_a_caller_whose_generation_runs_is_not_idle() -> None:
    """It has nothing to ask for until it has been answered."""
    engine = NotingEngine()

    async def end_generation() -> None:
        await until(lambda: engine.submitted)
        (generation,) = engine.submitted
        generation.outbox.announce()
        generation.outbox.deliver(generation.end(EndReason.HALTED, 0.0))

    ending = asyncio.create_task(end_generation())
    idle = IdleError("no message came for 1 s")
    *_, done = await serve(stream(engine), states(), generate(), idle)
    assert done.HasField("done")
    await ending


async def test_caller_that_does_not_read_is_ended() -> None:
    """An answer that cannot be written for too long is SLOW_READER."""

    async def send(response: pb.DecodeResponse) -> None:
        raise SlowReaderError("a response was not read for 1 s")

    with pytest.raises(ExceptionGroup) as caught:
        await stream().run(opening(), Requests(), send)
    (error,) = caught.value.exceptions
    assert isinstance(error, SlowReaderError)


async def test_broken_protocol_is_told_after_the_answers_before_it() -> None:
    """A second open ends the stream with its status."""
    sent: list[pb.DecodeResponse] = []
    with pytest.raises(ExceptionGroup) as caught:
        await serve(stream(), opening(), sent=sent)
    (error,) = caught.value.exceptions
    assert isinstance(error, OutOfOrderError)
    assert [response.WhichOneof("answer") for response in sent] == ["opened"]


async def test_end_is_logged_once_with_its_status(caplog: pytest.LogCaptureFixture) -> None:
    """One line a session, with its id and why it ended."""
    with caplog.at_level(logging.INFO, "earvoice.decoder"):
        await failure_of(stream(), IdleError("no message came for 1 s"))
    (line,) = [record for record in caplog.records if record.name == "earvoice.decoder"]
    assert (line.__dict__["session_id"], line.__dict__["status"]) == ("s", "IDLE")
