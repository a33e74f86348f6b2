"""Reading over HTTP: published streams as server-sent events, subtitles and HLS playlists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from earvoice.client.captions import SubtitleForm, subtitle_file
from earvoice.gateway import hls
from earvoice.gateway.access import read_address, shown_token
from earvoice.gateway.connection import body_of, unless_gone, wait_until_gone
from earvoice.gateway.door import Door
from earvoice.gateway.messages import read_captions
from earvoice.gateway.published import PublishedStream, transcript_of
from earvoice.runtime.engine import to_its_end
from earvoice.runtime.errors import InvalidFieldError, SlowReaderError

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' ws: wss:; "
    "media-src 'self' blob:; img-src 'self' data:; object-src 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_SUBTITLE_TYPES: dict[SubtitleForm, str] = {"srt": "application/x-subrip", "vtt": "text/vtt"}
_PLAYLIST_TYPE = "application/vnd.apple.mpegurl"
# Who may not have it has been refused: see `_find_for_player`.
_FOR_PLAYERS = {"Access-Control-Allow-Origin": "*", "Cache-Control": "no-cache"}
_LONGEST_BODY_BYTES = 16 << 20
"""A day of words."""
_HEARTBEAT_S = 5.0
_MOST_DIGITS = 15
_HEARTBEATS = {"true": "event: alive\ndata:\n\n", "false": ": still here\n\n"}
"""What is written where there is no news, by whether ``alive`` is wanted: pages see no comments."""


def reader_routes(door: Door) -> list[Route]:
    # Captions made on request take turns: the threads would share the event loop's processor.
    computing = asyncio.Lock()

    async def read_events(request: Request) -> Response:
        door.gatekeeper.check_origin(request)
        stream = find_stream(door, request)
        alive = request.query_params.get("alive", "false")
        if alive not in _HEARTBEATS:
            raise InvalidFieldError("alive", alive, " or ".join(_HEARTBEATS))
        return _EventStream(door, stream, languages_of(request, stream), _HEARTBEATS[alive])

    async def read_transcript(request: Request) -> Response:
        door.gatekeeper.check_origin(request)
        stream = find_stream(door, request)
        lines = stream.lines_of(languages_of(request, stream))
        async with computing:
            text = await to_its_end(asyncio.to_thread(transcript_of, stream, lines))
        return Response(text, media_type="application/json", headers={"Cache-Control": "no-cache"})

    return [
        Route("/v1/streams/{name}/events", read_events),
        Route("/v1/streams/{name}/transcript", read_transcript),
        *_subtitle_routes(door, "srt", computing),
        *_subtitle_routes(door, "vtt", computing),
        *_playlist_routes(door),
    ]


def find_stream(door: Door, connection: HTTPConnection) -> PublishedStream:
    name = connection.path_params["name"]
    door.gatekeeper.admit(shown_token(connection), "read").check_stream(name)
    return door.directory.find(name)


def _find_for_player(door: Door, request: Request) -> PublishedStream:
    """Return a stream for a player: where tokens decide, it may be on a page of any origin."""
    if door.settings.token_key is None:
        door.gatekeeper.check_origin(request)
    return find_stream(door, request)


def languages_of(connection: HTTPConnection, stream: PublishedStream) -> frozenset[str]:
    """Return the languages asked for: ``?language=de&language=es``; none for all.

    Raises:
        InvalidFieldError: the stream has none of them.
    """
    languages = connection.query_params.getlist("language")
    stream.check_languages(languages)
    return frozenset(languages)


def _subtitle_routes(door: Door, form: SubtitleForm, computing: asyncio.Lock) -> list[Route]:
    media_type = _SUBTITLE_TYPES[form]

    async def subtitles_of(body: bytes) -> str:
        async with computing:
            return await to_its_end(
                asyncio.to_thread(lambda: subtitle_file(read_captions(body), form))
            )

    async def read_subtitles(request: Request) -> Response:
        door.gatekeeper.check_origin(request)
        stream = find_stream(door, request)
        language = request.query_params.get("language") or next(iter(stream.languages), "")
        return Response(subtitle_file(stream.captions(language).cues, form), media_type=media_type)

    async def make_subtitles(request: Request) -> Response:
        door.gatekeeper.check_origin(request)
        door.gatekeeper.admit(shown_token(request))
        with door.counted():
            body = await _read_body(request, door.settings.idle_timeout_ms)
            text = await unless_gone(request, subtitles_of(body))
        return Response(text, media_type=media_type)

    return [
        Route(f"/v1/streams/{{name}}/captions.{form}", read_subtitles),
        Route(f"/v1/captions.{form}", make_subtitles, methods=["POST"]),
    ]


def _playlist_routes(door: Door) -> list[Route]:
    async def read_master(request: Request) -> Response:
        stream = _find_for_player(door, request)
        video = request.query_params.get("video", "")
        if not video.isprintable() or read_address(video).scheme not in {"http", "https"}:
            raise InvalidFieldError("video", video, "the address of a video's playlist")
        bandwidth = _number(request, "bandwidth", 2_000_000)
        _number(request, "mpegts", 0)  # else a player would get the error with its first captions
        passed_on = {
            name: request.query_params[name]
            for name in ("mpegts", "access_token")
            if name in request.query_params
        }
        query = f"?{urlencode(passed_on)}" if passed_on else ""
        text = hls.master_playlist(video, stream.languages, bandwidth, query)
        return Response(text, media_type=_PLAYLIST_TYPE, headers=_FOR_PLAYERS)

    async def read_playlist(request: Request) -> Response:
        stream = _find_for_player(door, request)
        captions = stream.captions(request.path_params["language"])
        query = f"?{request.url.query}" if request.url.query else ""
        text = hls.caption_playlist(captions.settled_ms, query, is_over=stream.is_over)
        return Response(text, media_type=_PLAYLIST_TYPE, headers=_FOR_PLAYERS)

    async def read_segment(request: Request) -> Response:
        stream = _find_for_player(door, request)
        captions = stream.captions(request.path_params["language"])
        text = hls.caption_segment(
            _whole("number", request.path_params["number"]),
            captions.cues,
            captions.settled_ms,
            _number(request, "mpegts", 0),
            is_over=stream.is_over,
        )
        return Response(text, media_type=_SUBTITLE_TYPES["vtt"], headers=_FOR_PLAYERS)

    return [
        Route("/v1/streams/{name}/hls/master.m3u8", read_master),
        Route("/v1/streams/{name}/hls/{language}/index.m3u8", read_playlist),
        Route("/v1/streams/{name}/hls/{language}/{number}.vtt", read_segment),
    ]


class _EventStream(Response):
    """Server-sent events of a published stream; a page's `EventSource` reconnects by itself."""

    media_type = "text/event-stream"

    def __init__(
        self, door: Door, stream: PublishedStream, languages: frozenset[str], heartbeat: str
    ) -> None:
        super().__init__()
        self._heartbeat = heartbeat
        self._door = door
        self._stream = stream
        self._languages = languages
        del self.headers["content-length"]
        self.headers.update({**SECURITY_HEADERS, "Cache-Control": "no-store"})

    async def _messages_for(self, method: str) -> AsyncIterator[str]:
        if method != "HEAD":
            async for message in self._stream.read(self._languages, _HEARTBEAT_S):
                yield message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        write_timeout_s = self._door.settings.write_timeout_ms / 1000

        async def write(text: str) -> None:
            async with asyncio.timeout(write_timeout_s):
                body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                await send(body)

        async def tell() -> None:
            headers = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **headers})
            async for message in self._messages_for(scope["method"]):
                await write(f"data: {message}\n\n" if message else self._heartbeat)
            await end()

        async def end() -> None:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        with self._door.counted():
            telling = asyncio.ensure_future(tell())
            leaving = asyncio.ensure_future(wait_until_gone(receive))
            is_sent_away = False
            try:
                await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                is_sent_away = self._door.is_draining
                if not is_sent_away:
                    raise
            finally:
                telling.cancel()
                leaving.cancel()
                await asyncio.wait({telling, leaving})
            if is_sent_away:
                with suppress(TimeoutError):  # the reader does not read
                    async with asyncio.timeout(write_timeout_s):
                        await end()
            if not telling.cancelled():
                error = telling.exception()
                if error is not None and not isinstance(error, TimeoutError | SlowReaderError):
                    raise error


async def _read_body(request: Request, timeout_ms: int) -> bytes:
    body = bytearray()
    async for block in body_of(request, timeout_ms):
        body += block
        if len(body) > _LONGEST_BODY_BYTES:
            raise InvalidFieldError("body", f"{len(body)} bytes", f"{_LONGEST_BODY_BYTES} at most")
    return bytes(body)


def _number(request: Request, name: str, default: int) -> int:
    return _whole(name, request.query_params.get(name, str(default)))


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InvalidFieldError(name, text, f"a whole number of {_MOST_DIGITS} digits at most")
    return int(text)
