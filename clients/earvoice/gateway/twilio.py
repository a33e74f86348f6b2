"""Twilio Media Streams: both people of a telephone call, each heard in sessions of their own.

Twilio opens the WebSocket, sends 20 ms of mu-law in each message, and takes no captions back: they
are published, and readers tell the two apart by their tags (ADR 0037).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.websockets import WebSocketDisconnect

from earvoice.client import AudioFormat, TranslationOptions
from earvoice.gateway.connection import Connection
from earvoice.gateway.door import Door
from earvoice.gateway.messages import (
    Fields,
    StartMessage,
    check_languages,
    check_stream_name,
    read_object,
)
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import InvalidAudioError, InvalidFieldError

AUDIO = AudioFormat("mulaw", 8_000)
MEDIA_FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": AUDIO.sample_rate_hz, "channels": 1}
TRACKS = ("inbound", "outbound")
SILENCE = b"\xff"
GAP_MS = 40
"""What is missing of a track before audio comes that is later than this becomes silence."""
LATENESS_MS = 500
"""How late a track's audio may come after another's of the same time; then it becomes silence."""
MOST_AHEAD_MS = 10_000
"""A timestamp that is further ahead of the time since the call's start is wrong."""
SILENCE_PIECE_MS = 1_000


async def serve_call(door: Door, connection: Connection) -> None:
    signed = door.gatekeeper.admit_twilio(connection.websocket)
    start = _read_start(await _start_message(door, connection))
    admission = signed or door.gatekeeper.admit(start.access_token, "speak")
    clock = CallClock(start.tracks)
    listen = partial(_listen, door, connection, clock)
    await door.caption_call(start, admission, listen, connection.traceparent)


async def _start_message(door: Door, connection: Connection) -> Mapping[str, Any]:
    """Return the message `start`, which may follow `connected`."""
    timeout_ms = door.settings.start_timeout_ms
    content = read_object(await connection.receive(timeout_ms, "the message connected"))
    if content.get("event") == "connected":
        content = read_object(await connection.receive(timeout_ms, "the message start"))
    return content


def _read_start(content: Mapping[str, Any]) -> StartMessage:
    if content.get("event") != "start":
        raise InvalidFieldError("event", content.get("event"), "start, after connected")
    told = Fields("start", content.get("start"))
    media_format, tracks = told.content.get("mediaFormat"), told.content.get("tracks")
    if media_format != MEDIA_FORMAT:
        raise InvalidFieldError("start.mediaFormat", media_format, json.dumps(MEDIA_FORMAT))
    if not isinstance(tracks, list) or not tracks or not all(track in TRACKS for track in tracks):
        raise InvalidFieldError("start.tracks", tracks, f"a list of {' and '.join(TRACKS)}")
    chosen = Fields("start.customParameters", told.content.get("customParameters") or {})
    parts = [part.strip() for part in chosen.take("to", str, default="").split(",")]
    languages = tuple(filter(None, parts))
    check_languages(f"{chosen.name}.to", languages)
    name = chosen.take("publish", str, default="")
    if name:
        check_stream_name(f"{chosen.name}.publish", name)
    else:
        name = told.take("callSid", str)
        check_stream_name("start.callSid", name)
    token = chosen.content.get("access_token", "")
    if not isinstance(token, str):
        raise InvalidFieldError(f"{chosen.name}.access_token", "(not shown)", "a text")
    options = TranslationOptions(
        target_languages=languages,
        audio=AUDIO,
        source_language=chosen.take("from", str, default=""),
        model=chosen.take("model", str, default=""),
    )
    return StartMessage(options, token, name, tracks=tuple(dict.fromkeys(tracks)))


async def _listen(door: Door, connection: Connection, clock: CallClock, speaker: Speaker) -> None:
    while True:
        try:
            message = await connection.receive(door.settings.idle_timeout_ms, "audio")
        except WebSocketDisconnect:
            return  # somebody has hung up
        content = read_object(message)
        match content.get("event"):
            case "media":
                for track, audio in clock.take(Fields("media", content.get("media"))):
                    await speaker.send(audio, track)
            case "stop":
                return
            case "dtmf" | "mark":
                pass
            case kind:
                raise InvalidFieldError("event", kind, "media, dtmf, mark or stop")


class CallClock:
    """Keeps the tracks of a call in step: its timestamps count from one beginning."""

    def __init__(self, tracks: Sequence[str]) -> None:
        self._ends_ms = dict.fromkeys(tracks, 0.0)
        self._began_s = time.monotonic()

    def take(self, media: Fields) -> Iterator[tuple[str, bytes]]:
        """Yield what to send to which track: silence where audio is missing, and this audio.

        Of audio that comes after it was given up, what silence stands for already is left out.
        """
        track = media.take("track", str, default=next(iter(self._ends_ms)))
        if track not in self._ends_ms:
            raise InvalidFieldError("media.track", track, " or ".join(self._ends_ms))
        try:
            audio = base64.b64decode(media.take("payload", str), validate=True)
            # Those who only imitate Twilio may leave it out: what they send is contiguous.
            told_ms = media.take("timestamp", str, default="")
            begin_ms = float(int(told_ms)) if told_ms else self._ends_ms[track]
        except (ValueError, OverflowError) as error:
            raise InvalidAudioError(f"media: {error}") from error
        most_ms = int(1000 * (time.monotonic() - self._began_s)) + MOST_AHEAD_MS
        if told_ms and not 0 <= begin_ms <= most_ms:
            raise InvalidFieldError("media.timestamp", told_ms, f"0 to {most_ms} by now")
        for each, end_ms in self._ends_ms.items():
            until_ms = begin_ms if each == track else begin_ms - LATENESS_MS
            if until_ms - end_ms > GAP_MS:
                for missing_ms in _pieces_ms(until_ms - end_ms):
                    yield each, SILENCE * _byte_count(missing_ms)
                self._ends_ms[each] = until_ms
        late_ms = self._ends_ms[track] - begin_ms
        if late_ms > GAP_MS:
            audio = audio[_byte_count(late_ms) :]
        self._ends_ms[track] += AUDIO.duration_ms(len(audio))
        yield track, audio


def _byte_count(duration_ms: float) -> int:
    return round(duration_ms * AUDIO.sample_rate_hz / 1000)


def _pieces_ms(duration_ms: float) -> Iterator[float]:
    while duration_ms > 0:
        yield min(duration_ms, SILENCE_PIECE_MS)
        duration_ms -= SILENCE_PIECE_MS
