"""The native WebSocket: a start message, then audio; our events as JSON (docs/gateway.md)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.websockets import WebSocketDisconnect

from earvoice.client import TranslationEvent
from earvoice.gateway.connection import Connection, is_final
from earvoice.gateway.door import Door
from earvoice.gateway.messages import (
    describe_event,
    dump,
    read_object,
    read_start,
    read_update_message,
)
from earvoice.gateway.recordings import ContainerAudio
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import IdleError, InvalidFieldError, OutOfOrderError

ALIVE_S = 3.0
"""Browsers hide pings from their pages, so a dead connection is known by the lack of messages."""


async def serve_speaker(door: Door, connection: Connection, token: str) -> None:
    first = await connection.receive(door.settings.start_timeout_ms, "the start message")
    if isinstance(first, bytes):
        raise OutOfOrderError("audio came before the start message")
    start = read_start(first)
    admission = door.gatekeeper.admit(start.access_token or token, "speak")

    async def tell(language: str, event: TranslationEvent, resume_point: bytes) -> None:
        connection.has_begun = True
        with suppress(WebSocketDisconnect):  # what that means is for `_listen` to say
            await connection.send(dump(describe_event(language, event, resume_point)))

    async with (
        door.open(start, admission, connection.traceparent) as speaker,
        asyncio.TaskGroup() as group,
    ):
        audio: Speaker | ContainerAudio = speaker
        if start.container:
            audio = ContainerAudio(speaker, start.options.audio)
            group.create_task(audio.run())
        beside = [group.create_task(_listen(door, connection, speaker, audio))]
        if start.alive:
            beside.append(group.create_task(_show_life(connection)))
        await speaker.run(tell)
        for task in beside:
            task.cancel()


async def _show_life(connection: Connection) -> None:
    with suppress(WebSocketDisconnect):  # see above
        while True:
            await asyncio.sleep(ALIVE_S)
            await connection.send(dump({"type": "alive"}))


async def _listen(
    door: Door, connection: Connection, speaker: Speaker, audio: Speaker | ContainerAudio
) -> None:
    """Take audio and changes; after ``end`` only wait for the caller to go."""
    while True:
        timeout_ms = None if audio.has_ended else door.settings.idle_timeout_ms
        had_started = audio.started.is_set()
        try:
            message = await connection.receive(timeout_ms, "audio")
        except IdleError:
            if had_started:
                raise
            continue  # the caller waits for us: no session has begun yet
        except WebSocketDisconnect as gone:
            if speaker.publication is None or not is_final(gone):
                raise
            # Readers get the last words all the same.
            speaker.leave()
            await audio.end()
            return
        if isinstance(message, bytes):
            await audio.send(message)
            continue
        content = read_object(message)
        match content.get("type"):
            case "end":
                await audio.end()
            case "update":
                await audio.send(read_update_message(content))
            case kind:
                raise InvalidFieldError("type", kind, "update or end, or audio as binary messages")
