"""The client against a scripted server."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import grpc
import pytest
from grpc_status import rpc_status

from earvoice.api.v1 import speech_translation_service_pb2_grpc as api_grpc
from earvoice.client import (
    Advice,
    AudioSourceError,
    Committed,
    GoAway,
    HoldN,
    InvalidRequestError,
    ProtocolError,
    Reconnected,
    SegmentDone,
    ServerBusyError,
    ServerFaultError,
    ServerUnavailableError,
    SessionEndedError,
    Started,
    Summary,
    TranslationOptions,
    TranslationUpdate,
    connect,
)
from earvoice.client.audio import send_fast
from earvoice.client.audio_log import MESSAGE_LIMIT_BYTES
from earvoice.client.server_channels import ServerChannels
from earvoice.client.translation_client import TranslationClient
from earvoice.runtime.errors import (
    BackendUnavailableError,
    InvalidFieldError,
    NotReadyError,
    SessionLimitError,
    SessionTooLongError,
)
from earvoice.runtime.status import status_proto
from earvoice.runtime.tls import ChannelTls, TlsFileError
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES, open_channel
from tests.certificates import Authority
from tests.integration.client.scripted_service import Response, ScriptedService, serve
from tests.until import until

OPTIONS = TranslationOptions(("de",))


async def translate(address, chunks, options=OPTIONS):
    async with connect(address) as client:
        return [event async for event in client.translate(send_fast(chunks), options)]


async def test_words_come_in_order_between_start_and_summary():
    """The whole of a good session."""
    service = ScriptedService([" Guten", " Tag", "."])
    async with serve(service) as address:
        events = await translate(address, [b"12", b"34"])
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Summary)
    words = [word for event in events if isinstance(event, Committed) for word in event.words]
    assert [(word.text, word.starts_word) for word in words] == [
        ("Guten", True),
        ("Tag", True),
        (".", False),
    ]
    assert all(word.received_ms > 0 for word in words)
    assert service.audio == [b"12", b"34"]


async def test_an_update_among_the_audio_keeps_its_place():
    """It is sent behind the audio that came before it."""
    service = ScriptedService()
    async with serve(service) as address:
        await translate(address, [b"12", TranslationUpdate(beam_size=3), b"34"])
    assert [(place, update.beam_size) for place, update in service.updates] == [(1, 3)]
    assert service.audio == [b"12", b"34"]


async def test_a_running_session_can_be_updated():
    """Whoever reads the events may change the session; the change goes before the next audio."""
    service = ScriptedService()
    released = asyncio.Event()

    async def audio():
        yield b"12"
        await released.wait()
        yield b"34"

    async with serve(service) as address, connect(address) as client:
        stream = client.open(audio(), OPTIONS)
        async for event in stream.events():
            if isinstance(event, SegmentDone) and not released.is_set():
                stream.update(TranslationUpdate(policy=HoldN(2), segment_ms=400))
                released.set()
    [(place, update)] = service.updates
    assert place == 1
    assert update.policy.hold_n.n == 2
    assert update.segment_duration.ToMilliseconds() == 400


async def test_audio_is_sent_in_whole_frames():
    """Chunks cut anywhere become messages of whole frames."""
    service = ScriptedService()
    async with serve(service) as address:
        await translate(address, [b"1", b"23", b"456"])
    assert service.audio == [b"12", b"3456"]


async def test_long_audio_is_split_below_the_servers_limit():
    """3 MiB in one chunk are no error."""
    service = ScriptedService()
    async with serve(service) as address:
        await translate(address, [bytes(3 * 1024 * 1024)])
    assert [len(message) for message in service.audio] == [1024 * 1024] * 3


async def test_a_refused_session_never_asks_for_audio():
    """A microphone is not opened for nothing, and the field is named."""
    asked = []

    async def microphone():
        asked.append(True)
        yield b"12"

    refusal = InvalidFieldError("target_language_codes", "xx", "de")
    async with serve(ScriptedService(failure=refusal)) as address, connect(address) as client:
        with pytest.raises(InvalidRequestError, match="target_language_codes") as caught:
            await anext(client.translate(microphone(), OPTIONS))
    assert caught.value.advice is Advice.GIVE_UP
    assert caught.value.metadata["allowed"] == "de"
    assert not asked


async def test_a_full_server_is_retried_after_the_time_it_names():
    """SESSION_LIMIT comes before anything was lost."""
    refusal = SessionLimitError("16 of 16 sessions", retry_after_ms=1500)
    async with serve(ScriptedService(failure=refusal)) as address:
        with pytest.raises(ServerBusyError) as caught:
            await translate(address, [])
    assert (caught.value.advice, caught.value.retry_after_s) == (Advice.RETRY, 1.5)


async def test_a_failure_in_mid_stream_says_where_to_resume():
    """The last acknowledged position comes with the error."""
    failure = BackendUnavailableError("the encoder is gone", retry_after_ms=100)
    service = ScriptedService([" eins"], failure=failure, fail_after=2)
    async with serve(service) as address:
        with pytest.raises(ServerUnavailableError) as caught:
            await translate(address, [b"12", b"34", b"56"])
    error = caught.value
    assert (error.advice, error.reason) == (Advice.RESUME, "BACKEND_UNAVAILABLE")
    assert (error.session_started, error.acknowledged_samples) == (True, 50)


class EndingInMidStream(ScriptedService):
    """Tells much, and why it ends, while its caller speaks on; in a thread beside the client's."""

    def __init__(self):
        super().__init__()
        self.asked, self.may_end, self.ended = (threading.Event() for _ in range(3))

    def StreamingTranslate(self, request_iterator, context):
        context.add_callback(self.ended.set)
        config = next(request_iterator).config
        yield Response(seq=1, session_started=self._start(config))
        next(request_iterator)
        self.asked.set()
        self.may_end.wait(120)
        for segment in range(1, 6):
            yield Response(seq=segment + 1, segment_done={"segment": segment})
        error = SessionTooLongError("it is late")
        context.abort_with_status(rpc_status.to_status(status_proto(error)))


async def test_who_speaks_on_hears_all_and_why_the_session_has_ended():
    """Though a write meets the end of the call before any of it has been read."""
    service = EndingInMidStream()

    async def audio():
        yield b"12"
        await until(service.asked.is_set)
        service.may_end.set()
        # Nothing is read meanwhile.
        service.ended.wait(120)
        time.sleep(0.1)  # noqa: ASYNC251 - to wait longer could only show more
        yield b"34"

    told = []
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        api_grpc.add_SpeechTranslationServiceServicer_to_server(service, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        async with connect(address) as client:
            with pytest.raises(SessionEndedError) as caught:
                async for event in client.translate(audio(), OPTIONS):
                    told.append(event)  # noqa: PERF401 - what comes before the error stays
        server.stop(None)
    assert caught.value.reason == "SESSION_TOO_LONG"
    assert [event.segment for event in told[1:]] == [1, 2, 3, 4, 5]


async def test_a_bug_of_the_server_is_given_up():
    """An unexpected exception there is one fixed sentence here."""
    async with serve(ScriptedService(failure=RuntimeError("secret"), fail_after=1)) as address:
        with pytest.raises(ServerFaultError) as caught:
            await translate(address, [b"12"])
    assert caught.value.advice is Advice.GIVE_UP
    assert "secret" not in str(caught.value)


async def test_a_missing_summary_is_no_success():
    """A server that ends early with status OK is not believed."""

    class Silent(ScriptedService):
        async def _play(self, request_iterator):
            async for request in request_iterator:
                if request.WhichOneof("message") == "config":
                    yield Response(session_started=self._start(request.config))

    async with serve(Silent()) as address:
        with pytest.raises(ProtocolError, match="without a summary"):
            await translate(address, [b"12"])


async def test_a_server_that_is_lost_behind_its_summary_has_told_everything():
    """The session is neither begun again nor summed up twice."""

    class Vanishing(ScriptedService):
        async def StreamingTranslate(self, request_iterator, context):
            async for response in super().StreamingTranslate(request_iterator, context):
                yield response
            raise NotReadyError("stopped meanwhile")

    service = Vanishing([" Guten"])
    async with serve(service) as address:
        events = await translate(address, [b"12"])
    assert [isinstance(event, Summary) for event in events].index(True) == len(events) - 1
    assert len(service.configs) == 1


async def test_a_session_that_comes_further_is_tried_anew():
    """The limit counts from the last loss, also where silence has nothing to commit."""
    now_s = 0.0

    class Dying(ScriptedService):
        async def _play(self, request_iterator):
            requests = aiter(request_iterator)
            self.configs.append((await anext(requests)).config)
            yield Response(session_started=self._start(self.configs[-1]))
            for segment in range(1, len(self.configs) + 1):
                yield Response(segment_done={"segment": segment})
            # A stream that ends before its audio is reset, and the reset may outrun the summary.
            async for _ in requests:
                pass
            if len(self.configs) < 4:
                raise NotReadyError("gone again")
            yield Response(summary={})

    service = Dying()
    options = TranslationOptions(("de",), reconnect_limit_s=60)
    segments = []
    async with serve(service) as address:
        channels = ServerChannels((address,), lambda target: open_channel(target[0]))
        async with TranslationClient(channels, lambda: now_s) as client:
            async for event in client.translate(send_fast([b"12"]), options):
                if isinstance(event, SegmentDone):
                    segments.append(event.segment)
                    now_s += 40
    assert segments == [1, 2, 3, 4]


async def test_sessions_whose_server_goes_away_look_for_another_together(monkeypatch):
    """One question over one connection, however many sessions the client has."""
    monkeypatch.setattr("earvoice.client.server_channels.LOOK_INTERVAL_S", 600.0)
    all_there = asyncio.Barrier(3)
    opened: list[str] = []

    class Draining(ScriptedService):
        async def _play(self, request_iterator):
            config = (await anext(aiter(request_iterator))).config
            yield Response(session_started=self._start(config))
            await all_there.wait()
            yield Response(go_away={"grace": {"seconds": 600}})
            yield Response(summary={})

    def open_to(target):
        opened.append(target[0])
        return open_channel(target[0])

    async def translate(client):
        return [event async for event in client.translate(send_fast([b"12"]), OPTIONS)]

    async with serve(Draining()) as address:
        channels = ServerChannels((address,), open_to)
        async with TranslationClient(channels) as client:
            sessions = await asyncio.gather(*(translate(client) for _ in range(3)))
    assert [[type(event) for event in events] for events in sessions] == (
        [[Started, GoAway, Summary]] * 3
    )
    assert len(opened) == 2


class DyingOnce(ScriptedService):
    async def _play(self, request_iterator):
        requests = aiter(request_iterator)
        self.configs.append((await anext(requests)).config)
        yield Response(session_started=self._start(self.configs[-1]))
        async for _ in requests:
            pass
        if len(self.configs) == 1:
            raise NotReadyError("stopping")
        yield Response(summary={})


async def test_a_certificate_that_is_being_replaced_ends_no_session():
    """Its file cannot be used when a session is lost, and can be when it is tried again."""
    opened: list[str] = []

    def open_to(target):
        opened.append(target[0])
        if len(opened) == 2:
            raise TlsFileError("client.crt cannot be used")
        return open_channel(target[0])

    options = TranslationOptions(("de",), reconnect_limit_s=60)
    async with serve(DyingOnce()) as address:
        channels = ServerChannels((address,), open_to)
        async with TranslationClient(channels, lambda: 0.0) as client:
            events = [event async for event in client.translate(send_fast([b"12"]), options)]
    assert [type(event) for event in events] == [Started, Reconnected, Summary]
    assert (events[1].reason, events[1].attempt_count) == ("stopping", 2)
    assert len(opened) == 3


async def test_a_certificate_that_cannot_be_used_is_told_at_the_start():
    """Nothing is lost yet, and its owner reads why."""

    def open_to(target):
        raise TlsFileError("client.crt cannot be used")

    async with TranslationClient(ServerChannels(("a:1",), open_to), lambda: 0.0) as client:
        with pytest.raises(TlsFileError, match="cannot be used"):
            async for _ in client.translate(send_fast([b"12"]), OPTIONS):
                pass


@pytest.mark.parametrize(
    ("issuer", "host"), [("strange", "127.0.0.1"), ("known", "elsewhere.example")]
)
async def test_a_server_whose_certificate_is_not_accepted_is_given_up(tmp_path, issuer, host):
    """Of a strange authority, or for another name: the next attempt would find the same."""
    authorities = {name: Authority(tmp_path, name) for name in ("known", "strange")}
    async with (
        serve(ScriptedService(), authorities[issuer].issue("server", host)) as address,
        connect(address, tls=ChannelTls(authorities["known"].file)) as client,
    ):
        for asking in (client.list_models(), anext(client.translate(send_fast([]), OPTIONS))):
            with pytest.raises(ServerUnavailableError, match="trusted authority") as caught:
                await asking
            assert f"the certificate of {address} is not accepted" in caught.value.message
            assert caught.value.advice is Advice.GIVE_UP


async def test_a_server_without_tls_is_given_up_where_tls_is_asked_for(tmp_path):
    """The client says so in words, and does not ask again."""
    async with (
        serve(ScriptedService()) as address,
        connect(address, tls=ChannelTls(Authority(tmp_path).file)) as client,
    ):
        with pytest.raises(ServerUnavailableError, match=f"{address} speaks no TLS") as told:
            await client.list_models()
        assert told.value.advice is Advice.GIVE_UP


async def test_a_server_with_tls_is_told_where_none_is_spoken(tmp_path):
    """It only hangs up, as one does that dies: so the client may try again."""
    known = Authority(tmp_path)
    async with serve(ScriptedService(), known.issue("server")) as address:
        async with connect(address) as client:
            with pytest.raises(ServerUnavailableError, match="that asks for TLS") as told:
                await client.list_models()
        assert told.value.advice is Advice.RETRY
        async with connect(address, tls=ChannelTls(str(known.file))) as client:
            await client.list_models()


async def test_a_tokens_last_line_break_is_not_sent():
    """It comes with the file that the token was read from; what no header can carry is refused."""
    async with serve(ScriptedService()) as address:
        for token in ("secret\n", lambda: "secret\n"):
            async with connect(address, token=token) as client:
                await client.list_models()
        with pytest.raises(ValueError, match="printable ASCII"):
            connect(address, token="of two\nlines")
        async with connect(address, token=lambda: "schön") as client:
            with pytest.raises(ValueError, match="printable ASCII"):
                await client.list_models()


async def test_a_certificate_that_is_not_accepted_ends_no_session_that_others_take(tmp_path):
    """The next address is tried, at the start and when the session is lost."""
    known, strange = Authority(tmp_path), Authority(tmp_path, "strange")
    options = TranslationOptions(("de",), reconnect_limit_s=60)
    async with (
        serve(ScriptedService(), strange.issue("strange")) as first,
        serve(DyingOnce(), known.issue("server")) as second,
        connect(f"{first},{second}", tls=ChannelTls(known.file)) as client,
    ):
        events = [event async for event in client.translate(send_fast([b"12"]), options)]
    assert [type(event) for event in events] == [Started, Reconnected, Summary]
    assert (events[1].reason, events[1].attempt_count) == ("stopping", 2)


async def test_nobody_there_is_unavailable():
    """A closed port is worth a retry."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerUnavailableError) as caught:
            await translate(address, [b"12"])
        assert caught.value.advice is Advice.RETRY
        async with connect(address) as client:
            with pytest.raises(ServerUnavailableError):
                await client.list_models()


async def test_a_failing_source_ends_the_session_with_its_own_error():
    """What the audio raises reaches the caller as it is, and the server sees a cancellation."""

    async def broken():
        yield b"12"
        raise AudioSourceError("damaged")

    service = ScriptedService()
    async with serve(service) as address, connect(address) as client:
        with pytest.raises(AudioSourceError, match="damaged"):
            async for _ in client.translate(broken(), OPTIONS):
                pass
        await until(lambda: service.unfinished_sessions == 1)


async def test_audio_that_ends_inside_a_frame_is_told():
    """Half a sample at the end means a wrong format; what was said is told before that."""
    told = None
    async with serve(ScriptedService([" eins"])) as address, connect(address) as client:
        with pytest.raises(AudioSourceError, match="1 of 2 bytes"):
            async for event in client.translate(send_fast([b"123"]), OPTIONS):
                told = event
    assert isinstance(told, Summary)


async def test_leaving_early_cancels_the_session():
    """Closing the events ends the call, though the audio would go on for ever."""

    async def endless():
        yield b"12"
        await asyncio.Event().wait()

    service = ScriptedService([" eins"])
    async with serve(service) as address, connect(address) as client:
        async with aclosing(client.translate(endless(), OPTIONS)) as events:
            async for event in events:
                if isinstance(event, Committed):
                    break
        await until(lambda: service.unfinished_sessions == 1)


async def test_a_cancelled_caller_stays_cancelled():
    """Cancelling the task that reads is not mistaken for a failure of the audio."""
    waiting = asyncio.Event()

    async def endless():
        waiting.set()
        await asyncio.Event().wait()
        yield b""

    async def read(client):
        async for _ in client.translate(endless(), OPTIONS):
            pass

    async with serve(ScriptedService()) as address, connect(address) as client:
        reader = asyncio.create_task(read(client))
        await waiting.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader


async def test_a_closed_client_ends_its_sessions_with_an_error():
    """Nobody has cancelled who reads them; and none goes on over another connection."""

    async def endless():
        yield b"12"
        await asyncio.Event().wait()

    service = ScriptedService([" eins"])
    async with serve(service) as address:
        client = connect(address)
        with pytest.raises(SessionEndedError) as caught:
            async for event in client.translate(endless(), OPTIONS):
                if isinstance(event, SegmentDone):
                    closing = asyncio.create_task(client.close())
        await closing
    assert caught.value.code == "CANCELLED"
    assert caught.value.acknowledged_samples == 50
    assert len(service.configs) == 1


async def test_a_session_whose_audio_waits_ends_with_an_error_when_its_client_is_closed():
    """The write that gRPC cancels does not look as if the reader had been cancelled."""
    options = TranslationOptions(("de",), reconnect_limit_s=0)  # keeps no audio: it waits as well
    closing = []

    class Deaf(ScriptedService):
        async def StreamingTranslate(self, request_iterator, context):
            config = (await anext(aiter(request_iterator))).config
            yield Response(seq=1, session_started=self._start(config))
            await asyncio.Event().wait()

    async def close(client):
        for _ in range(100):  # turns of the loop, in which the write begins
            await asyncio.sleep(0)
        await client.close()

    async def more_than_is_taken_unread(client):
        for _ in range(PUBLIC_MESSAGE_LIMIT_BYTES // MESSAGE_LIMIT_BYTES - 1):
            yield bytes(MESSAGE_LIMIT_BYTES)
        closing.append(asyncio.create_task(close(client)))
        yield bytes(MESSAGE_LIMIT_BYTES)

    async with serve(Deaf()) as address:
        client = connect(address)
        with pytest.raises(SessionEndedError, match="client has been closed"):
            async for _ in client.translate(more_than_is_taken_unread(client), options):
                pass
        await closing[0]


async def test_a_closed_client_answers_what_it_was_asked_with_an_error():
    """While its server says nothing; a question for its health is one, too."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.setblocking(False)
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        channels = ServerChannels((address,), lambda target: open_channel(target[0]))
        client = TranslationClient(channels)
        async with channels.use() as channel:
            asked = [asyncio.create_task(ask()) for ask in (client.list_models, channel.answers)]
            connection, _ = await asyncio.get_running_loop().sock_accept(mute)
            with connection:
                await client.close()
                ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(error, "code", error) for error in ended] == ["CANCELLED"] * 2


async def test_streams_share_a_connection():
    """Several translations of one client do not disturb each other."""
    async with serve(ScriptedService([" eins"])) as address, connect(address) as client:

        async def words():
            events = client.translate(send_fast([b"12"]), OPTIONS)
            return [e.words[0].text async for e in events if isinstance(e, Committed)]

        assert await asyncio.gather(words(), client.list_models()) == [
            ["eins"],
            await client.list_models(),
        ]


async def test_models_are_listed():
    """The catalogue names models, policies and limits."""
    async with serve(ScriptedService()) as address, connect(address) as client:
        catalog = await client.list_models()
    assert catalog.models[0].target_languages == ("de",)
    assert (catalog.policies, catalog.max_target_languages) == (("edatt",), 1)
