"""Twilio's side of a Media Streams connection, message by message as its documents give them."""

from __future__ import annotations

import base64
import json

CALL_ID = "CA0123456789abcdef0123456789abcdef"
STREAM_ID = "MZ0123456789abcdef0123456789abcdef"
FRAME_BYTES, FRAME_MS = 160, 20
PATH = "/v1/twilio"


class TwilioCall:
    """A call whose audio goes to an open WebSocket."""

    def __init__(self, websocket, tracks=("inbound",)):
        self._websocket = websocket
        self._tracks = tracks
        self._number = 0

    async def begin(self, media_format=None, **parameters):
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        await self._websocket.send(json.dumps(connected))
        await self._send(
            "start",
            start={
                "streamSid": STREAM_ID,
                "accountSid": "AC0123456789abcdef0123456789abcdef",
                "callSid": CALL_ID,
                "tracks": list(self._tracks),
                "customParameters": parameters,
                "mediaFormat": media_format
                or {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            },
        )

    async def say(self, audio, *, track="inbound", timestamp_ms=0, **changes):
        """Send mu-law audio, 20 ms in a message."""
        for number, start in enumerate(range(0, len(audio), FRAME_BYTES)):
            payload = base64.b64encode(audio[start : start + FRAME_BYTES]).decode()
            media = {
                "track": track,
                "chunk": str(self._number),
                "timestamp": str(timestamp_ms + FRAME_MS * number),
                "payload": payload,
            }
            await self._send("media", media={**media, **changes})

    async def press(self, digit):
        await self._send("dtmf", dtmf={"track": "inbound_track", "digit": digit})

    async def stop(self):
        await self._send("stop", stop={"accountSid": "AC", "callSid": CALL_ID})

    async def _send(self, event, **content):
        self._number += 1
        message = {"event": event, "sequenceNumber": str(self._number), "streamSid": STREAM_ID}
        await self._websocket.send(json.dumps({**message, **content}))
