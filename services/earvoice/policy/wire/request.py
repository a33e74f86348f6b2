"""The client's messages, in the order the protocol allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from earvoice.api.v1 import speech_translation_service_pb2 as public_pb
from earvoice.api.v1 import types_pb2
from earvoice.policy.stream_options import StreamOptions
from earvoice.policy.wire.update import updated_options
from earvoice.runtime.errors import IdleError, InvalidFieldError, OutOfOrderError

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

    async def messages(
        self,
        options: StreamOptions,
        model: types_pb2.ModelDescription,
        start_sample: int = 0,
        settled_sample: int = 0,
    ) -> AsyncIterator[bytes | StreamOptions]:
        """Yield what every further message brings: audio, or the options after an update.

        Args:
            options: what the config asked for.
            model: what the updates are checked against.
            start_sample: position of the first audio.
            settled_sample: updates that lie before this are in the options already.

        Raises:
            OutOfOrderError: a second config came.
            InvalidFieldError: a message was empty, or an update asked for what is not allowed.
            IdleError: none came in time.
        """
        position_sample = start_sample
        while (request := await self._next()) is not None:
            match request.WhichOneof("message"):
                case "audio":
                    position_sample += len(request.audio) // options.audio_format.frame_bytes
                    yield request.audio
                case "update" if position_sample < settled_sample:
                    continue
                case "update":
                    options = updated_options(options, request.update, model)
                    yield options
                case "config":
                    raise OutOfOrderError("a second config came; allowed: audio, update")
                case _:
                    raise InvalidFieldError("message", "nothing", "audio, update")

    async def _next(self) -> Request | None:
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                return await anext(self._requests, None)
        except TimeoutError as error:
            raise IdleError(f"no message came for {self._idle_timeout_s:g} s") from error
