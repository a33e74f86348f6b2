"""Live captions beside a video: segments that never change, read back by ffmpeg."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise

import httpx
import pytest
import webvtt
from hypothesis import given
from hypothesis import strategies as st

from earvoice.client import Committed, CommittedWord, EndOfUtterance, Started
from earvoice.client.options import TranslationOptions
from earvoice.gateway.access import issue_token
from earvoice.gateway.hls import SEGMENT_MS, caption_playlist, caption_segment
from earvoice.gateway.published import PublishedStream
from earvoice.runtime.errors import InvalidFieldError
from tests.browser import chromium
from tests.deploy.tool import node_package, program
from tests.integration.client.scripted_service import ScriptedService, serve
from tests.integration.gateway.running_gateway import receive_all, run_gateway, speak, start

KEY = "k" * 32


def spoken_stream(utterances):
    """A stream in which each utterance is ``(start_ms, end_ms, words)``; every moment of it."""
    stream = PublishedStream("hall", kept_lines=10_000)
    options = TranslationOptions(("de",), source_language="en")
    stream.publish("de", Started("s", None, options, "edatt", "1", "live", 0))
    for number, (start_ms, end_ms, texts) in enumerate(utterances):
        step_ms = (end_ms - start_ms) / max(1, len(texts))
        for index, text in enumerate(texts):
            begin_ms = start_ms + index * step_ms
            word = CommittedWord(text, True, "de", number, begin_ms, begin_ms + step_ms, 0, 0, 0)
            stream.publish("de", Committed((word,), 0, b""))
            yield stream
        stream.publish("de", EndOfUtterance(number, start_ms, end_ms, "pause", ""))
        yield stream


def segments_of(stream):
    captions = stream.captions("de")
    count = int(captions.settled_ms // SEGMENT_MS)
    return [
        caption_segment(n, list(captions.cues), captions.settled_ms, 0, is_over=False)
        for n in range(count)
    ]


@st.composite
def utterance_rows(draw):
    rows, end_ms = [], 0
    for _ in range(draw(st.integers(1, 6))):
        start_ms = end_ms + draw(st.integers(0, 9_000))
        end_ms = start_ms + draw(st.integers(300, 12_000))
        words = draw(st.lists(st.sampled_from(["Ja", "Guten", "Tag.", "heute,"]), max_size=12))
        rows.append((start_ms, end_ms, words))
    return rows


@given(utterance_rows())
def test_a_segment_that_was_listed_never_changes(rows):
    """Whatever comes later begins later."""
    before = []
    for stream in spoken_stream(rows):
        now = segments_of(stream)
        assert now[: len(before)] == before
        before = now


@given(utterance_rows())
def test_every_word_is_in_some_segment(rows):
    """Nothing that was said is left out, and cues do not overlap."""
    *_, stream = spoken_stream(rows)
    captions = stream.captions("de")
    cues = list(captions.cues)
    assert all(one.end_ms <= two.start_ms for one, two in pairwise(cues))
    playlist = caption_playlist(captions.settled_ms, "", is_over=True)
    count = sum(line.endswith(".vtt") for line in playlist.splitlines())
    said = set()
    for number in range(count):
        text = caption_segment(number, cues, captions.settled_ms, 0, is_over=True)
        said |= {(cue.start, cue.text) for cue in webvtt.from_string(text)}
    words = [word for _, text in sorted(said) for word in text.split()]
    assert words == [word for _, _, texts in rows for word in texts]


@given(st.integers(0, 600_000), st.integers(0, 600_000), st.booleans())
def test_what_has_left_a_playlist_never_comes_back(settled_ms, later_ms, is_over):
    """RFC 8216 §6.2.2, at the stream's end as well."""

    def first_of(playlist):
        return int(playlist.partition("#EXT-X-MEDIA-SEQUENCE:")[2].partition("\n")[0])

    earlier = caption_playlist(settled_ms, "", is_over=False)
    later = caption_playlist(settled_ms + later_ms, "", is_over=is_over)
    assert first_of(later) >= first_of(earlier)


@pytest.mark.parametrize(
    ("settings", "origin", "status"),
    [
        ({}, "https://other.example", 403),
        ({"allowed_origins": ("https://other.example",)}, "https://other.example", 200),
        ({}, None, 200),
        ({"token_key": KEY}, "https://other.example", 200),
    ],
)
async def test_a_player_on_a_page_needs_that_page_allowed_or_a_token(settings, origin, status):
    """As any page that reads what is said here."""
    headers = {"Origin": origin} if origin else {}
    speaking, reading = (
        issue_token(KEY, scope, "hall", timedelta(minutes=5)) for scope in ("speak", "read")
    )
    async with serve(ScriptedService([" Guten", " Tag."])) as server:
        async with run_gateway(server, **settings) as (address, _):
            async with speak(address, f"/v1/translate?access_token={speaking}") as speaker:
                await speaker.send(start(publish="hall"))
                await speaker.send(json.dumps({"type": "end"}))
                await receive_all(speaker)
            base = f"http://{address}/v1/streams/hall/hls"
            query = {"video": "https://video.example/a.m3u8", "access_token": reading}
            async with httpx.AsyncClient(params=query, headers=headers) as http:
                answers = [
                    await http.get(f"{base}/{path}")
                    for path in ("master.m3u8", "de/index.m3u8", "de/0.vtt")
                ]
    assert [answer.status_code for answer in answers] == [status] * 3
    shared = [answer.headers.get("access-control-allow-origin") for answer in answers]
    shown = origin if settings.get("allowed_origins") else "*"
    assert shared == [shown if status == 200 else None] * 3


def test_a_segment_that_is_not_settled_is_not_there():
    """Its number is told with those that are."""
    with pytest.raises(InvalidFieldError, match=r"segment = 3 .*0 to 1"):
        caption_segment(3, [], 2 * SEGMENT_MS, 0, is_over=False)


async def test_ffmpeg_reads_the_playlist_of_a_stream(tmp_path):
    """As a player would: the list, its segments, and the words in them."""
    ffmpeg = program("ffmpeg")
    async with serve(ScriptedService([" Guten", " Tag."])) as server:
        async with run_gateway(server) as (address, _), httpx.AsyncClient() as http:
            async with speak(address) as speaker:
                await speaker.send(start(publish="hall"))
                await speaker.send(b"\0\0" * 800)
                await speaker.send(json.dumps({"type": "end"}))
                await receive_all(speaker)
            base = f"http://{address}/v1/streams/hall/hls"
            video = {"video": "https://video.example/a.m3u8"}
            master = (await http.get(f"{base}/master.m3u8", params=video)).text
            wrong = await http.get(f"{base}/master.m3u8", params={"video": "a\nb"})
            broken = await http.get(f"{base}/master.m3u8", params={"video": "http://[x/y"})
            far = await http.get(f"{base}/de/{'9' * 5000}.vtt")
            output = tmp_path / "out.srt"
            command = [ffmpeg, "-v", "error", "-i", f"{base}/de/index.m3u8?mpegts=900000", output]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Guten Tag." in output.read_text(encoding="utf8")
    assert 'LANGUAGE="de"' in master
    assert master.endswith("https://video.example/a.m3u8\n")
    assert (wrong.status_code, broken.status_code, far.status_code) == (400, 400, 400)


class TimedService(ScriptedService):
    """Each word is a sentence of its own, three seconds after the one before."""

    def _release(self, text):
        response = super()._release(text)
        (item,) = response.committed.items
        item.source_start_sample = 3 * 16_000 * self.words.index(text)
        item.source_end_sample = item.source_start_sample + 16_000
        return response


VIDEO_STARTS_MS = 1_400
SPEECH_STARTS_MS = 500
PATIENCE_MS = 120_000
VIEWER = """
const video = document.createElement("video");
video.muted = true;
document.body.append(video);
window.hls = new Hls({enableWorker: false, startPosition: 0, renderTextTracksNatively: true});
window.failures = [];
hls.on(Hls.Events.ERROR, (_, {details, fatal}) => fatal && failures.push(details));
hls.on(Hls.Events.SUBTITLE_TRACKS_UPDATED, () => { hls.subtitleTrack = 0; });
hls.loadSource("MASTER");
hls.attachMedia(video);
window.cues = () => [...video.textTracks].flatMap(({cues}) => [...cues ?? []]
  .map(({startTime, text}) => [startTime, text]));
window.shown = () => [...video.textTracks].flatMap(({activeCues}) => [...activeCues ?? []])
  .map(({text}) => text);
"""


async def test_hls_js_shows_the_captions_beside_a_video(tmp_path):
    """In Chromium, while the speaker still speaks: each cue at its word's place in the video."""
    library = node_package("hls.js") / "dist" / "hls.min.js"
    segments = ("-f", "hls", "-hls_time", "6", "-hls_list_size", "0", tmp_path / "video.m3u8")
    picture = ("-f", "lavfi", "-i", "testsrc2=size=160x90:rate=10:duration=30")
    encoding = ("-c:v", "libx264", "-g", "60", "-pix_fmt", "yuv420p")
    command = [program("ffmpeg"), "-v", "error", *picture, *encoding, *segments]
    await asyncio.to_thread(subprocess.run, command, check=True)

    async def give_video(route):
        name = route.request.url.rpartition("/")[2]
        await route.fulfill(path=tmp_path / name, headers={"Access-Control-Allow-Origin": "*"})

    words = [f" Satz{number}." for number in range(8)]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve(TimedService(words)))
        # The speaker says nothing while the browser starts.
        gateway = run_gateway(server, allowed_origins=("*",), idle_timeout_ms=600_000)
        address, _ = await stack.enter_async_context(gateway)
        browser = await stack.enter_async_context(chromium())
        speaker = await stack.enter_async_context(speak(address))
        await speaker.send(start(publish="hall"))
        for _ in range(6):
            await speaker.send(b"\0\0" * 800)
        while json.loads(await speaker.recv()).get("segment") != 6:
            pass
        page = await browser.new_page()
        await page.route("http://video.test/**", give_video)
        await page.add_script_tag(path=library)
        # The video's first picture has the time 1.4 s; the speech began half a second after it.
        ticks = 90 * (VIDEO_STARTS_MS + SPEECH_STARTS_MS)
        master = f"http://{address}/v1/streams/hall/hls/master.m3u8"
        query = f"?video=http://video.test/video.m3u8&mpegts={ticks}"
        await page.evaluate(VIEWER.replace("MASTER", master + query))
        await page.wait_for_function("cues().length >= 3", timeout=PATIENCE_MS)
        await page.evaluate("document.querySelector('video').currentTime = 4")
        await page.wait_for_function("shown().join() === 'Satz1.'", timeout=PATIENCE_MS)
        await speaker.send(json.dumps({"type": "end"}))
        await receive_all(speaker)
        await page.wait_for_function("cues().length >= 8", timeout=PATIENCE_MS)
        cues = {text: at_s for at_s, text in await page.evaluate("cues()")}
        assert await page.evaluate("failures") == []
    assert list(cues) == [word.strip() for word in words]
    for number, at_s in enumerate(cues.values()):
        assert at_s == pytest.approx(SPEECH_STARTS_MS / 1000 + 3 * number, abs=0.1)
