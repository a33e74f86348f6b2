"""A waiting caller against a scripted service over real gRPC."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from earvoice.adapter.blocking_session import BlockingConnection
from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import speech_translation_service_pb2_grpc as api_grpc
from earvoice.client.errors import InvalidRequestError, ProtocolError, ServerFaultError
from earvoice.client.options import TranslationOptions
from earvoice.policies import HoldN, LocalAgreement
from earvoice.policies.registry import NamedPolicy
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.errors import InternalError
from tests.integration.client.scripted_service import serve

Response = api.StreamingTranslateResponse

RATE_HZ = 16_000
SEGMENT_MS = 500
SEGMENT_SAMPLES = RATE_HZ * SEGMENT_MS // 1000
PAUSE_SAMPLE = 2 * SEGMENT_SAMPLES
OPTIONS = TranslationOptions(
    target_languages=("de",),
    audio=AudioFormat("float32", RATE_HZ),
    segment_ms=SEGMENT_MS,
    catch_up="every-segment",
)


class PausingService(api_grpc.SpeechTranslationServiceServicer):
    """Releases a word with every segment; its first utterance ends a segment and a half back.

    So one segment of the second utterance is due as soon as the first has ended.
    """

    def __init__(self, *, fails_at: int | None = None, catch_up: int = api.CATCH_UP_EVERY_SEGMENT):
        self.fails_at = fails_at
        self.catch_up = catch_up
        self.ended = threading.Event()

    async def StreamingTranslate(self, request_iterator, context):
        try:
            seq = 0
            async for response in self._talk(request_iterator):
                seq += 1
                response.seq = seq
                yield response
        finally:
            self.ended.set()

    async def _talk(self, requests):
        self.received, self.start, self.segment, self.utterance = 0, 0, 0, 0
        async for request in requests:
            if request.WhichOneof("message") == "config":
                request.config.catch_up = self.catch_up
                clock = api.ELAPSED_CLOCK_TRUE
                yield Response(session_started={"config": request.config, "elapsed_clock": clock})
                continue
            self.received += len(request.audio) // 4
            while self._boundary() <= self.received:
                for response in self._work(self._boundary()):
                    yield response
        for response in self._work(self.received, final=True):
            yield response
        yield Response(summary={"audio_samples": self.received})

    def _boundary(self):
        return self.start + (self.segment + 1) * SEGMENT_SAMPLES

    def _work(self, end, *, final=False):
        self.segment += 1
        if self.fails_at == end:
            raise InternalError("scripted")
        item = {"text": f"{self.utterance}.{self.segment}", "starts_word": True}
        yield Response(committed={"items": [item]})
        pauses = not final and self.utterance == 0 and end == PAUSE_SAMPLE
        yield Response(
            segment_done={
                "utterance": self.utterance,
                "segment": self.segment,
                "end_sample": end,
                "ends_utterance": pauses or final,
            }
        )
        if pauses or final:
            self.start = end if final else end - SEGMENT_SAMPLES * 3 // 2
            yield Response(
                end_of_utterance={
                    "utterance": self.utterance,
                    "end_sample": self.start,
                    "cause": api.UTTERANCE_END_CAUSE_PAUSE,
                }
            )
            self.utterance, self.segment = self.utterance + 1, 0


async def in_thread(service, work):
    """Serve, and let a caller that waits work in a thread of its own."""
    async with serve(service) as address:
        return await asyncio.to_thread(work, address)


def texts(words):
    return [word.text for word in words]


async def test_each_piece_brings_the_words_of_the_segments_that_it_completes():
    """An utterance's end moves the grid back, and what is due then comes at once too."""

    def work(address):
        session = BlockingConnection(address).open(OPTIONS)
        half = bytes(4 * SEGMENT_SAMPLES // 2)
        brought = [texts(session.push(half)) for _ in range(6)]
        return brought, texts(session.finish())

    brought, rest = await in_thread(PausingService(), work)
    assert brought == [[], ["0.1"], [], ["0.2", "1.1"], ["1.2"], []]
    assert rest == ["1.3"]


async def test_one_long_piece_brings_all_its_segments():
    """A tool may send more than a segment at once."""

    def work(address):
        session = BlockingConnection(address).open(OPTIONS)
        return texts(session.push(bytes(4 * 3 * SEGMENT_SAMPLES)))

    assert await in_thread(PausingService(), work) == ["0.1", "0.2", "1.1", "1.2"]


async def test_a_failure_is_raised_where_the_caller_waits():
    """The client's own error, with its advice."""

    def work(address):
        session = BlockingConnection(address).open(OPTIONS)
        session.push(bytes(4 * SEGMENT_SAMPLES))
        with pytest.raises(ServerFaultError):
            session.push(bytes(4 * SEGMENT_SAMPLES))

    await in_thread(PausingService(fails_at=PAUSE_SAMPLE), work)


async def test_a_server_that_merges_segments_is_refused():
    """Nobody could tell when all words of a piece are there."""

    def work(address):
        session = BlockingConnection(address).open(OPTIONS)
        with pytest.raises(ProtocolError):
            session.push(bytes(4 * SEGMENT_SAMPLES))

    await in_thread(PausingService(catch_up=api.CATCH_UP_MERGE), work)


async def test_a_target_lag_that_moves_the_segments_is_refused():
    """A tool would wait for a segment that ends behind the audio it has sent."""
    moving = replace(OPTIONS, policy=LocalAgreement(n=2), target_lag_ms=2000)

    def work(address):
        for policy in (moving.policy, NamedPolicy("their_own")):
            session = BlockingConnection(address).open(replace(moving, policy=policy))
            with pytest.raises(InvalidRequestError, match=rf"target_lag .* policy\.{policy.name}"):
                session.push(bytes(4 * SEGMENT_SAMPLES))
        standing = replace(moving, policy=HoldN(n=2))
        return texts(BlockingConnection(address).open(standing).push(bytes(4 * SEGMENT_SAMPLES)))

    assert await in_thread(PausingService(), work) == ["0.1"]


async def test_a_session_can_be_left_and_another_begun():
    """The server sees the first one end."""
    service = PausingService()

    def work(address):
        connection = BlockingConnection(address)
        session = connection.open(OPTIONS)
        session.push(bytes(4 * SEGMENT_SAMPLES))
        session.leave()
        assert service.ended.wait(10)
        return texts(connection.open(OPTIONS).push(bytes(4 * SEGMENT_SAMPLES)))

    assert await in_thread(service, work) == ["0.1"]


def open_in_thread(address):
    """A connection with a session under way, and the thread of its event loop."""
    before = set(threading.enumerate())
    connection = BlockingConnection(address)
    (thread,) = set(threading.enumerate()) - before
    connection.open(OPTIONS).push(bytes(4 * SEGMENT_SAMPLES))
    return connection, thread


async def test_a_connection_that_is_forgotten_leaves_no_thread():
    """These tools have no hook for their end."""

    def work(address):
        connection, thread = open_in_thread(address)
        del connection
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()

    await in_thread(PausingService(), work)


async def test_an_address_that_is_none_leaves_no_thread():
    """A process could not end."""
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="server"):
        BlockingConnection("")
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


async def test_garbage_may_be_collected_in_a_connection_s_own_thread():
    """Python collects where it happens to be; to wait there for the loop would be for ever."""

    def work(address):
        connection, thread = open_in_thread(address)
        connection._loop.call_soon_threadsafe(connection.close)
        thread.join(10)
        assert not thread.is_alive()

    await in_thread(PausingService(), work)


class SilentService(PausingService):
    """Takes what comes, and answers nothing."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Event()

    async def _talk(self, requests):
        async for request in requests:
            self.asked.set()
            await asyncio.Event().wait()
            yield request


async def test_a_connection_may_be_closed_while_a_caller_waits():
    """The wait ends, be it another thread's or an interrupted one, and so does the session."""
    service = SilentService()

    def work(address):
        before = set(threading.enumerate())
        connection = BlockingConnection(address)
        (thread,) = set(threading.enumerate()) - before
        session, errors = connection.open(OPTIONS), []

        def push():
            try:
                session.push(bytes(4))
            except CancelledError as error:
                errors.append(error)

        pushing = threading.Thread(target=push, daemon=True)
        pushing.start()
        assert service.asked.wait(60)
        connection.close()
        for ending in (pushing, thread):
            ending.join(30)
            assert not ending.is_alive()
        assert len(errors) == 1
        assert service.ended.wait(60)

    await in_thread(service, work)


async def test_an_error_does_not_hold_its_connection():
    """Else only the garbage collector could close it, later and anywhere."""

    def work(address):
        with pytest.raises(ProtocolError):
            BlockingConnection(address).open(OPTIONS).push(bytes(4 * SEGMENT_SAMPLES))

    def work_and_look(address):
        before = set(threading.enumerate())
        gc.disable()
        try:
            work(address)
        finally:
            gc.enable()
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
            assert not thread.is_alive()

    await in_thread(PausingService(catch_up=api.CATCH_UP_MERGE), work_and_look)
