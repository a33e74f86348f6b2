"""The OpenAI realtime translations dialect, for SDKs that speak it already: text out, no speech.

The caller appends 24 kHz PCM16 in base64 and gets append-only deltas with their own spaces.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any

from earvoice.client import (
    AudioFormat,
    Committed,
    EndOfUtterance,
    TranslationError,
    TranslationEvent,
    TranslationOptions,
)
from earvoice.gateway import messages
from earvoice.gateway.connection import Connection
from earvoice.gateway.door import Door
from earvoice.gateway.messages import StartMessage, dump, read_object
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import (
    EarvoiceError,
    InvalidAudioError,
    InvalidFieldError,
    OutOfOrderError,
)

SUBPROTOCOLS = ("realtime",)
AUDIO = AudioFormat("linear16", 24_000, 1)
FRAME_MS = 200
"""``elapsed_ms`` advances in these steps."""


async def serve_speaker(door: Door, connection: Connection, token: str) -> None:
    admission = door.gatekeeper.admit(token, "speak")
    model = connection.websocket.query_params.get("model", "")
    session = _Session(connection, model)
    await session.tell("session.created", session=session.describe())
    first_audio = await _configure(door, connection, session)
    if first_audio is None:
        await session.tell("session.closed")
        return
    options = TranslationOptions(
        target_languages=(session.language,),
        audio=AUDIO,
        model=model if model in await _own_models(door, admission.server_token) else "",
        transcript=session.wants_transcript,
    )
    async with (
        door.open(StartMessage(options), admission, connection.traceparent) as speaker,
        asyncio.TaskGroup() as group,
    ):
        listening = group.create_task(_listen(door, connection, session, speaker))
        await speaker.send(first_audio)
        await speaker.run(lambda _, event, __: session.tell_event(event))
        listening.cancel()
    await session.tell("session.closed")


def describe_error(
    error: EarvoiceError | TranslationError, *, has_begun: bool = False
) -> dict[str, Any]:
    told = messages.describe_error(error, has_begun=has_begun)
    kind = "invalid_request_error" if told["advice"] == "give up" else "server_error"
    # A server that is not there, or a proxy before it, gives no reason.
    code = told["reason"] or told["code"]
    detail = {"type": kind, "code": code.lower(), "message": told["message"]}
    return {"type": "error", "event_id": _new_id("event"), "error": detail}


class _Session:
    """What the caller has chosen, and the messages it is sent."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._id = _new_id("sess")
        self._model = model
        self._begins = True
        self.language = ""
        self.wants_transcript = False

    def update(self, session: object) -> None:
        audio = _objects_inside(session, "session", "audio")
        output = _objects_inside(audio, "session.audio", "output")
        language = output.get("language", self.language)
        if not isinstance(language, str) or not language:
            raise InvalidFieldError("session.audio.output.language", language, "a language's tag")
        self.language = language
        given = _objects_inside(audio, "session.audio", "input")
        if "transcription" in given:
            self.wants_transcript = given["transcription"] is not None

    def describe(self) -> dict[str, Any]:
        """Return the dialect's session object; it has no output audio, and says so."""
        return {
            "id": self._id,
            "type": "translation",
            "model": self._model,
            "expires_at": 0,
            "audio": {
                "input": {"transcription": {"model": "own"} if self.wants_transcript else None},
                "output": {"language": self.language} if self.language else {},
            },
            "output_modalities": ["text"],
        }

    async def tell(self, kind: str, **content: object) -> None:
        message = {"type": kind, "event_id": _new_id("event"), **content}
        await self._connection.send(dump(message))

    async def tell_event(self, event: TranslationEvent) -> None:
        """Send an event if the dialect has a message for it."""
        match event:
            case Committed():
                for word in event.words:
                    blank = " " if word.starts_word and not self._begins else ""
                    self._begins = False
                    elapsed_ms = FRAME_MS * round(word.source_end_ms / FRAME_MS)
                    await self.tell(
                        "session.output_transcript.delta",
                        delta=blank + word.text,
                        elapsed_ms=elapsed_ms,
                    )
            case EndOfUtterance() if self.wants_transcript and event.source_transcript:
                elapsed_ms = FRAME_MS * round(event.end_ms / FRAME_MS)
                await self.tell(
                    "session.input_transcript.delta",
                    delta=f"{event.source_transcript} ",
                    elapsed_ms=elapsed_ms,
                )


async def _configure(door: Door, connection: Connection, session: _Session) -> bytes | None:
    """Take messages up to the first audio; return it, or None if the caller closes before it."""
    while True:
        message = await connection.receive(door.settings.idle_timeout_ms, "a message")
        content = read_object(message)
        if content.get("type") == "session.close":
            return None
        audio = await _take(content, session)
        if audio is None:
            continue
        if not session.language:
            raise OutOfOrderError("session.audio.output.language is not chosen: session.update")
        return audio


async def _listen(door: Door, connection: Connection, session: _Session, speaker: Speaker) -> None:
    while True:
        timeout_ms = None if speaker.has_ended else door.settings.idle_timeout_ms
        content = read_object(await connection.receive(timeout_ms, "audio"))
        if content.get("type") == "session.close":
            await speaker.end()
            continue
        audio = await _take(content, session, has_begun=True)
        if audio is not None:
            await speaker.send(audio)


async def _take(
    content: Mapping[str, Any], session: _Session, *, has_begun: bool = False
) -> bytes | None:
    match content.get("type"):
        case "session.update":
            before = session.language, session.wants_transcript
            session.update(content.get("session"))
            if has_begun and (session.language, session.wants_transcript) != before:
                problem = "a session that has begun keeps its language and its transcription"
                raise OutOfOrderError(problem)
            await session.tell("session.updated", session=session.describe())
        case "session.input_audio_buffer.append":
            try:
                return base64.b64decode(content["audio"], validate=True)
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidAudioError("audio is not base64") from error
        case kind:
            allowed = "session.update, session.input_audio_buffer.append or session.close"
            raise InvalidFieldError("type", kind, allowed)
    return None


async def _own_models(door: Door, token: str) -> set[str]:
    """Return the names of our models; any other name selects the default."""
    catalog = await door.client.with_token(token).list_models()
    return {model.name for model in catalog.models}


def _objects_inside(parent: object, path: str, name: str) -> dict[str, Any]:
    if not isinstance(parent, dict):
        raise InvalidFieldError(path, json.dumps(parent), "an object")
    child = parent.get(name) or {}
    if not isinstance(child, dict):
        raise InvalidFieldError(f"{path}.{name}", json.dumps(child), "an object")
    return child


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
