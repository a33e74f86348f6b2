"""The client's messages, in the order the protocol allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.runtime.errors import (
    IdleError,
    InvalidFieldError,
    OutOfOrderError,
    UnimplementedFieldError,
)

Request = public_pb.StreamingTranslateRequest


class RequestReader:
    """Reads one stream.

    Args:
        requests: the client's messages.
        idle_timeout_s: how long the client may be silent.
    """

    def __init__(self, requests: AsyncIterator[Request], idle_timeout_s: float) -> None:
        self._requests = requests
        self._idle_timeout_s = idle_timeout_s

    async def config(self) -> public_pb.StreamingConfig:
        """Return the first message.

        Raises:
            OutOfOrderError: it is not a config.
            IdleError: none came in time.
        """
        request = await self._next()
        if request is None:
            raise OutOfOrderError("the stream ended before its config")
        if request.WhichOneof("message") != "config":
            raise OutOfOrderError(
                f"the first message is {request.WhichOneof('message') or 'empty'}; allowed: config"
            )
        return request.config

    async def audio(self) -> AsyncIterator[bytes]:
        """Yield the audio of every further message.

        Raises:
            OutOfOrderError: a second config came.
            UnimplementedFieldError: an update came.
            InvalidFieldError: a message was empty.
            IdleError: none came in time.
        """
        while (request := await self._next()) is not None:
            match request.WhichOneof("message"):
                case "audio":
                    yield request.audio
                case "config":
                    raise OutOfOrderError("a second config came; allowed: audio")
                case "update":
                    raise UnimplementedFieldError("update")
                case _:
                    raise InvalidFieldError("message", "nothing", "config, audio")

    async def _next(self) -> Request | None:
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                return await anext(self._requests, None)
        except TimeoutError as error:
            raise IdleError(f"no message came for {self._idle_timeout_s:g} s") from error
