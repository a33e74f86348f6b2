"""Published streams: many readers of one speaker, late ones, slow ones, and who may read."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
import webvtt
from websockets.asyncio.client import ClientConnection

from earvoice.client import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    NotUnderstood,
    ResumePoint,
    Started,
    Tentative,
)
from earvoice.client.captions import CaptionMarks
from earvoice.client.options import TranslationOptions
from earvoice.gateway import readers
from earvoice.gateway.access import issue_token
from earvoice.gateway.messages import describe_event, read_captions
from earvoice.gateway.published import (
    LOST_S,
    READERS_AT_ONCE,
    WAITING_MESSAGES,
    PublishedStream,
    StreamDirectory,
)
from earvoice.runtime.engine import to_its_end
from earvoice.runtime.errors import (
    InvalidFieldError,
    LanguageNotSupportedError,
    OutOfOrderError,
    SlowReaderError,
    UnauthenticatedError,
)
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import (
    of_kind,
    receive_all,
    run_gateway,
    speak,
    start,
    text_of,
)
from tests.until import PATIENCE_S, until

CHUNK = b"\0\0" * 800
KEY = "k" * 32


def word(text, utterance=0):
    return CommittedWord(text, starts_word=True, target_language="de", utterance=utterance,
                         source_start_ms=0, source_end_ms=10, delay_ms=20, elapsed_ms=30,
                         received_ms=40)  # fmt: skip


def committed(text, utterance=0):
    return Committed((word(text, utterance),), 0, b"secret")


def point(token):
    place = ResumePoint()
    place.token = token
    return place


def started(language="de"):
    options = TranslationOptions(("de",), source_language="en")
    return Started("s", None, options, "edatt", "1", "live", 0), language


async def read_all(stream, languages=frozenset()):
    return [json.loads(message) async for message in stream.read(languages)]


def test_what_a_speaker_has_asked_for_may_be_read_before_it_has_begun():
    """A player that comes between two languages' beginnings learns of both."""
    directory = StreamDirectory(kept_lines=5, linger_s=10)
    directory.open("hall", languages=("de", "es"))
    stream = directory.find("hall")
    stream.check_languages(["fr", "es"])
    assert stream.languages == ["de", "es"]
    assert not stream.captions("es").cues
    with pytest.raises(
        InvalidFieldError, match="language = 'fr' is not allowed; allowed: de or es"
    ):
        stream.check_languages(["fr", "pl"])


async def test_a_late_reader_gets_the_last_lines_first():
    """Then what comes, until the end; nothing of the speaker's own."""
    stream = PublishedStream("hall", kept_lines=10)
    event, language = started()
    stream.publish(language, event)
    stream.publish("de", committed("Guten"))
    stream.publish("de", EndOfUtterance(0, 0, 500, "pause", ""))
    stream.publish("de", committed("Tag", 1))
    reading = asyncio.create_task(read_all(stream))
    await until(lambda: stream.reader_count)
    stream.publish("de", committed("Herr", 1))
    stream.end(now_s=0)
    lines, news, end = await reading
    assert [(line["text"], line["is_final"]) for line in lines["lines"]] == [
        ("Guten", True),
        ("Tag", False),
    ]
    assert [w["text"] for w in news["words"]] == ["Herr"]
    assert "resume_point" not in news
    assert end == {"type": "end"}


async def test_an_utterance_without_words_has_no_line():
    """A late reader gets no empty line for sound in which nothing was understood."""
    stream = PublishedStream("hall", kept_lines=10)
    event, language = started()
    stream.publish(language, event)
    stream.publish("de", EndOfUtterance(0, 0, 500, "pause", ""))
    stream.publish("de", committed("Guten", 1))
    stream.end(now_s=0)
    lines, _ = await read_all(stream)
    assert [line["text"] for line in lines["lines"]] == ["Guten"]


async def test_a_reader_gets_only_the_languages_it_asked_for():
    """The rest is not sent."""
    stream = PublishedStream("hall", kept_lines=10)
    for language in ("de", "es"):
        event, _ = started(language)
        stream.publish(language, event)
    reading = asyncio.create_task(read_all(stream, frozenset({"es"})))
    await until(lambda: stream.reader_count)
    stream.publish("de", committed("Tag"))
    stream.publish("es", committed("Día"))
    stream.end(now_s=0)
    assert [message["language"] for message in (await reading)[1:-1]] == ["es"]


async def test_what_comes_while_the_last_lines_are_sent_comes_after_them():
    """A reader misses nothing between the two."""
    stream = PublishedStream("hall", kept_lines=10)
    stream.publish("de", started()[0])
    stream.publish("de", committed("Guten"))
    reading = stream.read()
    assert json.loads(await anext(reading))["lines"][0]["text"] == "Guten"
    stream.publish("de", committed("Tag"))
    assert json.loads(await anext(reading))["words"][0]["text"] == "Tag"
    await reading.aclose()


async def test_the_speaker_has_its_turn_between_readers():
    """However many there are: all get the message, and not all at once."""
    stream = PublishedStream("hall", kept_lines=10)
    stream.publish("de", started()[0])
    count, told = 10 * READERS_AT_ONCE, 0

    async def read():
        nonlocal told
        reading = stream.read()
        await anext(reading)
        await anext(reading)
        told += 1
        await reading.aclose()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(read())
        await until(lambda: stream.reader_count == count)
        stream.publish("de", committed("Tag"))
        while not told:
            await asyncio.sleep(0)
        assert told <= READERS_AT_ONCE
    assert told == count


async def test_a_reader_that_does_not_read_is_sent_away_and_the_speaker_never_waits():
    """Its messages are given up; the others lose none."""
    stream = PublishedStream("hall", kept_lines=10)
    stream.publish("de", started()[0])
    slow = stream.read()
    await anext(slow)
    pending = asyncio.create_task(anext(slow))
    await until(lambda: stream.reader_count)
    stream.publish("de", committed("eins"))
    assert json.loads(await pending)["words"][0]["text"] == "eins"
    for _ in range(WAITING_MESSAGES + 1):
        stream.publish("de", committed("mehr"))
    with pytest.raises(SlowReaderError, match="come again"):
        await anext(slow)
    assert stream.reader_count == 0


def test_a_name_is_spoken_under_by_one_at_a_time_and_kept_for_a_while():
    """Late readers of a stream that is over still find it, until its time has passed."""
    now_s = 0.0
    directory = StreamDirectory(kept_lines=5, linger_s=10, now_s=lambda: now_s)
    speaker = directory.open("hall")
    stream = speaker.stream
    with pytest.raises(InvalidFieldError, match="publish = 'hall'"):
        directory.open("hall")
    directory.close(speaker, lost=False)
    now_s = 9.0
    assert directory.find("hall") is stream
    speaker = directory.open("hall", points={"de": point(b"of another gateway")})
    assert speaker.stream is stream
    directory.close(speaker, lost=False)
    now_s = 19.0
    with pytest.raises(InvalidFieldError, match="stream = 'hall'"):
        directory.find("hall")


async def test_readers_are_told_once_what_a_speaker_says_that_comes_again():
    """Its connection was lost with the last words on their way: it goes on before them."""
    directory = StreamDirectory(kept_lines=5, linger_s=10)
    first = directory.open("hall")
    reading = asyncio.create_task(read_all(first.stream))
    await asyncio.sleep(0)
    first.publish("de", started()[0])
    first.publish("de", Committed((word("eins"),), 0, b"one"))
    first.publish("de", Committed((word("zwei"), word("drei")), 0, b"three"))
    first.publish("de", EndOfUtterance(0, 0, 500, "pause", "", resume_token=b"end"))
    with pytest.raises(InvalidFieldError, match="publish = 'hall'"):
        directory.open("hall", points={"de": point(b"somebody else's")})
    # Its loss need not have been noticed.
    second = directory.open("hall", points={"de": point(b"one")})
    assert second.stream is first.stream
    with pytest.raises(OutOfOrderError, match="'hall' goes on by another connection"):
        first.publish("de", committed("Gespenst"))
    directory.close(first, lost=True)
    second.publish("de", started()[0])
    second.publish("de", Tentative("zwei", "de", 0))
    second.publish("de", Committed((word("zwei"),), 0, b"two"))
    second.publish("de", Committed((word("drei"), word("vier")), 0, b"four"))
    second.publish("de", EndOfUtterance(0, 0, 600, "pause", ""))
    second.publish("de", committed("fünf", 1))
    directory.close(second, lost=False)
    (_, *news) = await reading
    texts = [word["text"] for event in news for word in event.get("words", ())]
    assert texts == ["eins", "zwei", "drei", "vier", "fünf"]
    assert [event["type"] for event in news].count("utterance_end") == 1
    cues = first.stream.captions("de").cues
    assert " ".join(" ".join(cue.lines) for cue in cues) == "eins zwei drei vier fünf"


async def test_readers_wait_for_a_speaker_whose_connection_was_lost():
    directory = StreamDirectory(kept_lines=5, linger_s=10)
    first = directory.open("hall")
    first.publish("de", started()[0])
    first.publish("de", Committed((word("eins"),), 0, b"one"))
    reading = asyncio.create_task(read_all(first.stream))
    await asyncio.sleep(0)
    directory.close(first, lost=True)
    second = directory.open("hall", points={"de": point(b"one")})
    second.publish("de", committed("zwei"))
    directory.close(second, lost=True)
    # Nobody speaks there now: the name is free.
    third = directory.open("hall")
    assert third.stream is not first.stream
    lines, *news = await reading
    assert lines["lines"][0]["text"] == "eins"
    assert [event["type"] for event in news] == ["words", "end"]


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock a test sets on."""

    skipped_s = 0.0

    def time(self):
        return super().time() + self.skipped_s


def test_readers_wait_as_long_for_a_speaker_that_is_lost_again():
    """From the second loss on, not from the first."""

    async def set_on(part):
        asyncio.get_running_loop().skipped_s += part * LOST_S
        for _ in range(2):  # the second turn is after the timers that are due
            await asyncio.sleep(0)

    async def lose_twice():
        directory = StreamDirectory(kept_lines=5, linger_s=10)
        first = directory.open("hall")
        first.publish("de", started()[0])
        first.publish("de", Committed((word("eins"),), 0, b"one"))
        directory.close(first, lost=True)
        await set_on(0.9)
        second = directory.open("hall", points={"de": point(b"one")})
        directory.close(second, lost=True)
        await set_on(0.9)
        assert not second.stream.is_over
        await set_on(0.2)
        assert second.stream.is_over

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(lose_twice())


async def say_nonsense(websocket):
    await websocket.send("no json")


async def close_without_a_code(websocket):
    websocket.protocol.send_close()
    websocket.transport.write(b"".join(websocket.protocol.data_to_send()))


async def abort(websocket):
    websocket.transport.abort()


@pytest.mark.parametrize(
    ("leave", "is_over"),
    [
        (abort, False),
        (ClientConnection.close, True),
        (close_without_a_code, True),
        (say_nonsense, True),
    ],
)
async def test_a_connection_that_is_lost_is_not_one_that_was_closed(leave, is_over):
    """Readers wait for who may come back, as from a hole in the Wi-Fi, not for who must give up."""
    async with serve(ScriptedService([" Guten"])) as server, run_gateway(server) as (address, door):
        async with speak(address) as speaker:
            await speaker.send(start(publish="hall"))
            await speaker.recv()
            stream = door.directory.find("hall")
            await leave(speaker)
            await until(lambda: not door.speaker_count)
    assert stream.publication is None
    assert stream.is_over is is_over


@pytest.mark.parametrize("has_told_the_end", [False, True])
async def test_readers_get_the_last_words_of_who_closes(has_told_the_end):
    """A page that is shut, a line that is hung up: what was said until then is translated."""
    async with serve(ScriptedService([" Guten", " Tag"])) as server, run_gateway(server) as (at, _):
        async with speak(at) as speaker:
            await speaker.send(start(publish="hall"))
            await speaker.recv()
            async with speak(at, "/v1/streams/hall") as reader:
                await speaker.send(CHUNK)
                if has_told_the_end:
                    await speaker.send(json.dumps({"type": "end"}))
                await speaker.close()
                heard = await receive_all(reader)
    assert text_of(heard) == "Guten Tag"
    assert heard[-1] == {"type": "end"}


def test_a_name_is_free_as_soon_as_its_speaker_has_left():
    """Who comes back at once does not wait for the last words of the time before."""
    directory = StreamDirectory(kept_lines=5, linger_s=10)
    before = directory.open("hall")
    before.is_left = True
    assert directory.open("hall").stream is directory.find("hall") is not before.stream
    assert before.stream.is_over
    with pytest.raises(OutOfOrderError, match="'hall' goes on by another connection"):
        before.publish("de", committed("Gespenst"))


class Guarded(ScriptedService):
    """Serves who shows the right token, but not in "xx", and says where to resume."""

    async def StreamingTranslate(self, request_iterator, context):
        if dict(context.invocation_metadata()).get("authorization") != "Bearer right":
            raise UnauthenticatedError("the token is not valid")
        async for response in super().StreamingTranslate(request_iterator, context):
            response.seq += int(self.configs[-1].resume_token or 0)
            if response.WhichOneof("message") == "committed":
                response.committed.resume_token = b"%d" % response.seq
            yield response

    def _start(self, config):
        if config.target_language_codes[0] == "xx":
            raise LanguageNotSupportedError("target_language_codes", "xx", "de")
        return super()._start(config)


async def test_who_is_refused_takes_no_stream_from_its_readers():
    """A stream waits for its speaker; a name is taken by who may speak under it."""
    async with serve(Guarded([" Guten"])) as server, run_gateway(server) as (address, door):
        async with speak(address) as speaker:
            await speaker.send(start(publish="hall", access_token="right"))
            await speaker.send(CHUNK)
            while "resume_point" not in (told := json.loads(await speaker.recv())):
                pass
            reader = await speak(address, "/v1/streams/hall")
            await reader.recv()
            speaker.transport.abort()
            await until(lambda: not door.speaker_count)
        languages = {"config": {"targetLanguageCodes": ["de", "xx"]}}
        for name, asked, reason in (
            ("hall", {"access_token": "wrong"}, "UNAUTHENTICATED"),
            ("hall", {"access_token": "right", **languages}, "LANGUAGE_NOT_SUPPORTED"),
            ("other", {"access_token": "wrong"}, "UNAUTHENTICATED"),
        ):
            async with speak(address) as thief:
                await thief.send(start(publish=name, **asked))
                *_, refused = await receive_all(thief)
            assert refused["reason"] == reason
        with pytest.raises(InvalidFieldError, match="stream = 'other'"):
            door.directory.find("other")
        async with speak(address) as speaker:
            resume = {"de": told["resume_point"]}
            await speaker.send(start(publish="hall", access_token="right", resume=resume))
            await speaker.send(json.dumps({"type": "end"}))
            await receive_all(speaker)
        assert [message["type"] for message in await receive_all(reader)] == [
            "words",
            "utterance_end",
            "end",
        ]


async def test_pages_and_sockets_read_what_a_speaker_publishes():
    """Server-sent events and a WebSocket tell the same text; nobody reads what is not there."""
    async with serve(ScriptedService([" Guten", " Tag"])) as server:
        async with run_gateway(server) as (address, door), httpx.AsyncClient() as http:
            async with speak(address) as speaker:
                await speaker.send(start(publish="hall"))
                await speaker.recv()
                socket = await speak(address, "/v1/streams/hall")
                url = f"http://{address}/v1/streams/hall/events"
                events = asyncio.create_task(http.get(url, timeout=PATIENCE_S))
                await until(lambda: door.directory.reader_count == 2)
                await speaker.send(CHUNK)
                await speaker.send(CHUNK)
                await speaker.send(json.dumps({"type": "end"}))
                spoken = text_of(await receive_all(speaker))
            read = await receive_all(socket)
            body = (await events).text
            subtitles = await http.get(f"http://{address}/v1/streams/hall/captions.vtt")
            nobody = await http.get(f"http://{address}/v1/streams/other/events")
            unspoken = await http.get(f"{url}?language=xx&language=yy")
            unclear = await http.get(f"{url}?alive=yes")
            async with speak(address, "/v1/streams/hall?language=xx") as refused:
                (failure,) = await receive_all(refused)
    lines = [line for line in body.splitlines() if line.startswith("data: ")]
    told = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert text_of(read) == text_of(told) == spoken == "Guten Tag"
    assert of_kind(read, "end")
    assert [cue.text for cue in webvtt.from_string(subtitles.text)] == ["Guten Tag"]
    assert nobody.status_code == 404
    assert "stream = 'other'" in nobody.json()["error"]["message"]
    assert unspoken.status_code == 400
    fault = "language = 'xx' is not allowed; allowed: de"
    assert fault in unspoken.json()["error"]["message"]
    assert fault in failure["message"]
    assert unclear.status_code == 400
    assert "alive = 'yes' is not allowed; allowed: true or false" in unclear.text


async def test_words_become_subtitles_of_either_form():
    """A page hands its words in and gets a file; a wrong word is named."""
    words = [
        {"text": text, "starts_word": True, "utterance": 0, "source_start_ms": start_ms,
         "source_end_ms": start_ms + 400}
        for text, start_ms in (("Guten", 0), ("Tag", 500.5))
    ]  # fmt: skip
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with httpx.AsyncClient(base_url=f"http://{address}") as http:
            srt = await http.post("/v1/captions.srt", json={"words": words})
            vtt = await http.post("/v1/captions.vtt", json={"words": words})
            wrong = await http.post("/v1/captions.vtt", json={"words": [{**words[0], "text": 1}]})
            none = await http.post("/v1/captions.vtt", json={})
            long = await http.post("/v1/captions.vtt", json={"words": [{"text": "a" * 2000}]})
            endless = json.dumps({"words": [{**words[0], "source_end_ms": 0}]}).replace(
                '"source_end_ms": 0', '"source_end_ms": 1e999'
            )
            late = await http.post("/v1/captions.vtt", content=endless)
            much = await http.post(
                "/v1/captions.vtt", json={"words": [{**words[0], "text": "字" * 1000}] * 1001}
            )
            marked = await http.post(
                "/v1/captions.vtt", json={"words": [], "captions": {"not_understood": "x " * 43}}
            )
    assert srt.text == "1\n00:00:00,000 --> 00:00:01,000\nGuten Tag\n\n"
    assert vtt.text == "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nGuten Tag\n\n"
    assert (wrong.status_code, none.status_code) == (400, 400)
    assert "words[0].text = 1" in wrong.json()["error"]["message"]
    assert (long.status_code, late.status_code) == (400, 400)
    assert "1000 letters at most" in long.json()["error"]["message"]
    assert "words[0].source_end_ms = inf" in late.json()["error"]["message"]
    assert much.status_code == 400
    assert "words = '1001000 letters'" in much.json()["error"]["message"]
    assert marked.status_code == 400
    assert "captions.not_understood = '86 letters'" in marked.json()["error"]["message"]
    assert "84 letters at most" in marked.json()["error"]["message"]


NOT_UNDERSTOOD = EndOfUtterance(
    1, 5_000, 9_000, "pause", "", not_understood=NotUnderstood(5_500, 7_500)
)


async def test_captions_mark_what_may_be_wrong():
    """Alike in a file that is made of a page's words, and in what a stream publishes."""
    marks = {"mark_below": 0.5, "not_understood": "[not understood]"}
    unsure = replace(word("Tag."), confidence=0.4)
    stream = PublishedStream("hall", 10, CaptionMarks(0.5, marks["not_understood"]))
    stream.publish("de", started()[0])
    stream.publish("de", Committed((word("Guten"), unsure), 0, b""))
    stream.publish("de", EndOfUtterance(0, 0, 5_000, "pause", ""))
    stream.publish("de", NOT_UNDERSTOOD)
    told = [
        describe_event("de", event)
        for event in (Committed((word("Guten"), unsure), 0, b""), NOT_UNDERSTOOD)
    ]
    cues = read_captions(
        json.dumps({"words": told[0]["words"], "utterances": told[1:], "captions": marks}).encode()
    )
    assert cues == list(stream.captions("de").cues)
    assert [cue.lines for cue in cues] == [("Guten Tag(?).",), ("[not understood]",)]
    assert (cues[1].start_ms, cues[1].end_ms) == (5_500, 7_500)


class Unsure(ScriptedService):
    """Of every word."""

    def _release(self, text):
        response = super()._release(text)
        response.committed.items[0].confidence = 0.4
        return response


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        ({}, "Guten Tag."),
        ({"mark_below": 0.5}, "Guten(?) Tag(?)."),
        ({"mark_below": 2}, "captions.mark_below = 2"),
        ({"marks": 1}, "captions = 'marks'"),
    ],
)
async def test_the_speaker_says_what_its_captions_mark(marks, told):
    """In the start message: subtitles and playlists have it; what is wrong is named."""
    async with serve(Unsure([" Guten", " Tag."])) as server, run_gateway(server) as (address, _):
        async with speak(address) as speaker:
            await speaker.send(start(publish="hall", captions=marks))
            await speaker.send(json.dumps({"type": "end"}))
            messages = await receive_all(speaker)
        if messages[-1]["type"] == "error":
            assert told in messages[-1]["message"]
            return
        async with httpx.AsyncClient(base_url=f"http://{address}/v1/streams/hall") as http:
            for path in ("captions.srt", "captions.vtt", "hls/de/0.vtt"):
                assert f"{told}\n" in (await http.get(path)).text


async def test_tokens_are_for_one_stream_and_one_purpose():
    """With a key nobody speaks or reads without a token of it; expired ones are none."""
    hour = timedelta(hours=1)
    speaking = issue_token(KEY, "speak", "hall", hour)
    reading = issue_token(KEY, "read", "hall", hour)
    expired = issue_token(KEY, "speak", "hall", -hour)
    listed = issue_token(KEY, "speak", ["hall"], hour)
    service = ScriptedService([" gut"])
    async with serve(service) as server, run_gateway(server, token_key=KEY) as (address, _):

        async def refused(message, **options):
            async with speak(address, **options) as websocket:
                await websocket.send(message)
                return (await receive_all(websocket))[-1]["message"]

        assert "is needed" in await refused(start(publish="hall"))
        assert "expired" in await refused(start(publish="hall", access_token=expired))
        assert "not valid" in await refused(start(publish="hall", access_token="x.y.z"))
        assert "not valid" in await refused(start(publish="hall", access_token=listed))
        assert "scope 'speak'" in await refused(start(publish="hall", access_token=reading))
        assert "'hall'" in await refused(start(publish="other", access_token=speaking))
        assert "'hall'" in await refused(start(access_token=speaking))
        bearer = {"Authorization": f"Bearer {speaking}"}
        async with speak(address, additional_headers=bearer) as websocket:
            await websocket.send(start(publish="hall"))
            await websocket.send(json.dumps({"type": "end"}))
            assert text_of(await receive_all(websocket)) == "gut"
        async with httpx.AsyncClient() as http:
            url = f"http://{address}/v1/streams/hall/events"
            assert (await http.get(url)).status_code == 401
            wrong = await http.get(url, params={"access_token": speaking})
            assert wrong.status_code == 403
            right = await http.get(url, params={"access_token": reading})
            assert "gut" in right.text
            captions = f"http://{address}/v1/captions.vtt"
            assert (await http.post(captions, json={"words": []})).status_code == 401
            for token in (speaking, reading):
                shown = {"Authorization": f"Bearer {token}"}
                made = await http.post(captions, json={"words": []}, headers=shown)
                assert made.text == "WEBVTT\n\n"


async def test_the_page_and_its_models_are_served():
    """Our own files only, with a policy that loads nothing from elsewhere."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with httpx.AsyncClient(base_url=f"http://{address}") as http:
            page = await http.get("/")
            assert page.status_code == 200
            assert "default-src 'self'" in page.headers["content-security-policy"]
            assert "//" not in page.text.replace("http://www.w3.org", "")
            for name in ("main.js", "stream.js", "captions.js", "capture.js", "recorder.js"):
                assert (
                    (await http.get(f"/{name}"))
                    .headers["content-type"]
                    .startswith(("text/javascript", "application/javascript"))
                )
            assert (await http.get("/../door.py")).status_code == 404
            models = (await http.get("/v1/models")).json()
            assert models["models"][0]["target_languages"] == ["de"]
            assert (await http.get("/readyz")).text == "ready"


async def test_a_gateway_without_a_service_is_not_ready():
    """It is alive and says what is missing."""
    async with run_gateway("127.0.0.1:9") as (address, _), httpx.AsyncClient() as http:
        assert (await http.get(f"http://{address}/healthz")).status_code == 200
        ready = await http.get(f"http://{address}/readyz", timeout=PATIENCE_S)
    assert ready.status_code == 503
    assert ready.json()["error"]["advice"] == "retry"


async def test_scripts_of_allowed_pages_can_read_the_answers():
    """Captions and events too, refusals as well; a browser asks first whether they may."""
    page = "https://good.example"
    async with serve(ScriptedService([" Guten"])) as server:
        async with run_gateway(server, allowed_origins=(page,)) as (address, _):
            async with httpx.AsyncClient(base_url=f"http://{address}") as http:
                asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
                answers = [
                    await http.options("/v1/captions.vtt", headers=asked),
                    await http.get("/v1/models", headers={"Origin": page}),
                    await http.get("/v1/streams/none/events", headers={"Origin": page}),
                ]
                foreign = await http.get("/v1/models", headers={"Origin": "https://evil.example"})
    assert [answer.status_code for answer in answers] == [200, 200, 404]
    shared = [answer.headers["access-control-allow-origin"] for answer in answers]
    assert shared == [page] * 3
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers


async def test_head_asks_for_no_events():
    """The connection is free for the next request."""
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, _):
        async with speak(address) as speaker, httpx.AsyncClient(timeout=PATIENCE_S) as http:
            await speaker.send(start(publish="hall"))
            await speaker.recv()
            answer = await http.head(f"http://{address}/v1/streams/hall/events")
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert (await http.get(f"http://{address}/healthz")).text == "alive"


async def test_who_has_left_keeps_nobody_waiting_for_captions(monkeypatch):
    """Its turn goes to the next."""
    can_end = threading.Event()
    monkeypatch.setattr(readers, "subtitle_file", lambda *_: can_end.wait() and "WEBVTT")
    async with serve(ScriptedService()) as server, run_gateway(server) as (address, door):
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            url = f"http://{address}/v1/captions.vtt"
            first = asyncio.create_task(http.post(url, json={"words": []}))
            await until(lambda: door.socket_count == 1)
            _, writer = await asyncio.open_connection(*address.split(":"))
            head = (
                f"POST /v1/captions.vtt HTTP/1.1\r\nHost: {address}\r\nContent-Length: 13\r\n\r\n"
            )
            writer.write(f'{head}{{"words": []}}'.encode())
            await until(lambda: door.socket_count == 2)
            writer.transport.abort()
            await until(lambda: door.socket_count == 1)
            assert not first.done()
            can_end.set()
            assert (await first).text == "WEBVTT"


async def test_what_a_thread_uses_is_in_use_until_it_ends():
    """Though nobody waits for it any more."""
    has_begun, can_end = threading.Event(), threading.Event()
    work = asyncio.to_thread(lambda: has_begun.set() or can_end.wait())
    computing = asyncio.create_task(to_its_end(work))
    await until(has_begun.is_set)
    computing.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not computing.done()
    can_end.set()
    await asyncio.wait({computing})
    assert computing.cancelled()
