"""The gateway's application under the real server, on a free port of this machine."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager, suppress

import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from earvoice.gateway.__main__ import server_config
from earvoice.gateway.door import Door
from earvoice.gateway.published import StreamNotFoundError
from earvoice.gateway.settings import GatewaySettings
from tests.until import PATIENCE_S

CONFIG = {
    "audioEncoding": "AUDIO_ENCODING_LINEAR16",
    "sampleRateHertz": 16_000,
    "targetLanguageCodes": ["de"],
}


@asynccontextmanager
async def run_gateway(server_address, configure=lambda config: config, **settings):
    """Give the gateway's ``host:port`` and its door.

    Args:
        configure: changes the server's configuration.
    """
    door = Door(GatewaySettings(server=server_address, **settings))
    server = uvicorn.Server(configure(server_config(door)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"127.0.0.1:{port}", door
        finally:
            server.should_exit = True
            async with asyncio.timeout(PATIENCE_S):
                await serving


def is_on(door, name):
    """Whether a stream of this name has been published."""
    try:
        return bool(door.directory.find(name))
    except StreamNotFoundError:
        return False


def speak(address, path="/v1/translate", **options):
    return connect(f"ws://{address}{path}", max_size=None, **options)


def start(**changes):
    """A start message that works, with some fields changed."""
    return json.dumps(
        {"type": "start", "config": {**CONFIG, **changes.pop("config", {})}, **changes}
    )


async def receive_all(websocket):
    """Return every message until the gateway closes, as objects."""
    messages = []
    with suppress(ConnectionClosed):  # with whichever code; tests look at it themselves
        async with asyncio.timeout(PATIENCE_S):
            while True:
                messages.append(json.loads(await websocket.recv()))
    return messages


def of_kind(messages, kind):
    return [message for message in messages if message["type"] == kind]


def text_of(messages, language="de"):
    words = [
        word
        for message in of_kind(messages, "words")
        if message["language"] == language
        for word in message["words"]
    ]
    return "".join(f" {w['text']}" if w["starts_word"] else w["text"] for w in words).strip()
