"""Twilio Media Streams: both people of a telephone call, each heard in sessions of their own.

Twilio opens the WebSocket, sends 20 ms of mu-law in each message, and takes no captions back: they
are published, and readers tell the two apart by their tags (ADR 0037).
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.websockets import WebSocketDisconnect

from earvoice.client import AudioFormat, TranslationEvent, TranslationOptions
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


@dataclass(frozen=True)
class Call:
    """What Twilio says of a call, and what its `<Parameter>`s choose."""

    tracks: tuple[str, ...]
    start: StartMessage


async def serve_call(door: Door, connection: Connection) -> None:
    signed = door.gatekeeper.admit_twilio(connection.websocket)
    call = _read_call(await _first_message(door, connection))
    admission = signed or door.gatekeeper.admit(call.start.access_token, "speak")

    async def tell(_: str, event: TranslationEvent, __: bytes) -> None:
        del event  # its readers are told

    async with (
        door.open(call.start, admission, connection.traceparent) as speaker,
        asyncio.TaskGroup() as group,
    ):
        listening = group.create_task(_listen(door, connection, call, speaker))
        await speaker.run(tell)
        listening.cancel()


async def _first_message(door: Door, connection: Connection) -> Mapping[str, Any]:
    """Return the message `start`, which follows `connected`."""
    while True:
        message = await connection.receive(door.settings.start_timeout_ms, "the message start")
        content = read_object(message)
        if content.get("event") != "connected":
            return content


def _read_call(content: Mapping[str, Any]) -> Call:
    if content.get("event") != "start":
        raise InvalidFieldError("event", content.get("event"), "start, after connected")
    told = Fields("start", content.get("start"))
    if told.content.get("mediaFormat") != MEDIA_FORMAT:
        given = told.content.get("mediaFormat")
        raise InvalidFieldError("start.mediaFormat", given, json.dumps(MEDIA_FORMAT))
    tracks = told.content.get("tracks")
    if not isinstance(tracks, list) or not tracks or not set(tracks) <= {*TRACKS}:
        raise InvalidFieldError("start.tracks", tracks, f"a list of {' and '.join(TRACKS)}")
    chosen = Fields("start.customParameters", told.content.get("customParameters") or {})
    languages = tuple(filter(None, chosen.take("to", str, default="").split(",")))
    check_languages(f"{chosen.name}.to", languages)
    name = chosen.take("publish", str, default="") or told.take("callSid", str)
    check_stream_name(f"{chosen.name}.publish", name)
    options = TranslationOptions(
        target_languages=languages,
        audio=AUDIO,
        source_language=chosen.take("from", str, default=""),
        model=chosen.take("model", str, default=""),
    )
    token = chosen.take("access_token", str, default="")
    return Call(tuple(tracks), StartMessage(options, token, name, tracks=tuple(tracks)))


async def _listen(door: Door, connection: Connection, call: Call, speaker: Speaker) -> None:
    clock = _Clock(call.tracks)
    while not speaker.has_ended:
        try:
            message = await connection.receive(door.settings.idle_timeout_ms, "audio")
        except WebSocketDisconnect:
            break  # the call is over, and nobody resumes it: its last words still come
        content = read_object(message)
        match content.get("event"):
            case "media":
                for track, audio in clock.take(Fields("media", content.get("media"))):
                    await speaker.send(audio, track)
            case "stop":
                break
            case "dtmf" | "mark":
                pass
            case kind:
                raise InvalidFieldError("event", kind, "media, dtmf, mark or stop")
    await speaker.end()


class _Clock:
    """Keeps the tracks of a call in step: its timestamps count from one beginning."""

    def __init__(self, tracks: Sequence[str]) -> None:
        self._ends_ms = dict.fromkeys(tracks, 0.0)
        self._began_s = time.monotonic()

    def take(self, media: Fields) -> Iterator[tuple[str, bytes]]:
        """Yield what to send to which track: silence where audio is missing, and this audio."""
        track = media.take("track", str, default=next(iter(self._ends_ms)))
        if track not in self._ends_ms:
            raise InvalidFieldError("media.track", track, " or ".join(self._ends_ms))
        try:
            audio = base64.b64decode(media.take("payload", str), validate=True)
            # Those who only imitate Twilio may leave both out: what they send is contiguous.
            begin_ms = int(media.take("timestamp", str, default="0"))
        except ValueError as error:
            raise InvalidAudioError(f"media: {error}") from error
        most_ms = int(1000 * (time.monotonic() - self._began_s)) + MOST_AHEAD_MS
        if begin_ms > most_ms:
            raise InvalidFieldError("media.timestamp", begin_ms, f"{most_ms} at most by now")
        for each, end_ms in self._ends_ms.items():
            until_ms = begin_ms if each == track else begin_ms - LATENESS_MS
            if until_ms - end_ms > GAP_MS:
                for missing_ms in _pieces_ms(until_ms - end_ms):
                    yield each, SILENCE * round(missing_ms * AUDIO.sample_rate_hz / 1000)
                self._ends_ms[each] = until_ms
        self._ends_ms[track] += AUDIO.duration_ms(len(audio))
        yield track, audio


def _pieces_ms(duration_ms: float) -> Iterator[float]:
    while duration_ms > 0:
        yield min(duration_ms, SILENCE_PIECE_MS)
        duration_ms -= SILENCE_PIECE_MS
