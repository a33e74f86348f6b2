"""The client: ``async with connect("127.0.0.1:50051") as client``."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1.speech_translation_service_pb2_grpc import SpeechTranslationServiceStub
from earvoice.client.model_description import ModelCatalog, read_catalog
from earvoice.client.rpc_failure import translate_failure
from earvoice.client.translation_stream import TranslationStream
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES, channel_options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable
    from types import TracebackType

    from earvoice.client.event import TranslationEvent
    from earvoice.client.options import TranslationOptions, TranslationUpdate

LIST_MODELS_TIMEOUT_S = 10.0


class TranslationClient:
    """A connection to a SpeechTranslationService; any number of translations may share it.

    Args:
        channel: an open channel; it is closed with the client.
        now_s: a monotonic clock in seconds.
    """

    def __init__(
        self, channel: grpc.aio.Channel, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._stub = SpeechTranslationServiceStub(channel)
        self._now_s = now_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; running translations end with CANCELLED."""
        await self._channel.close()

    def open(
        self, audio: AsyncIterable[bytes | TranslationUpdate], options: TranslationOptions
    ) -> TranslationStream:
        """Return a session that can be changed while it runs: ``update``; read its ``events``.

        Args:
            audio: bytes in ``options.audio``'s format, cut anywhere, and updates in their place;
                its end ends the session.
            options: what to translate, and how.
        """
        return TranslationStream(self._stub.StreamingTranslate(), audio, options, self._now_s)

    async def translate(
        self, audio: AsyncIterable[bytes | TranslationUpdate], options: TranslationOptions
    ) -> AsyncGenerator[TranslationEvent, None]:
        """Translate one stream of audio.

        The first event is ``Started``, the last ``Summary``. Close the generator
        (``contextlib.aclosing``) to leave early: the session is cancelled then.

        Args:
            audio: bytes in ``options.audio``'s format, cut anywhere, and updates in their place;
                its end ends the session.
            options: what to translate, and how.

        Raises:
            TranslationError: see ``advice`` for what to do about it.
        """
        async with aclosing(self.open(audio, options).events()) as events:
            async for event in events:
                yield event

    async def list_models(self, timeout_s: float = LIST_MODELS_TIMEOUT_S) -> ModelCatalog:
        """Ask what the server serves.

        Raises:
            TranslationError: see ``advice`` for what to do about it.
        """
        try:
            answer = await self._stub.ListModels(api.ListModelsRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as failure:
            raise translate_failure(failure) from failure
        return read_catalog(answer)


def connect(
    address: str, *, credentials: grpc.ChannelCredentials | None = None
) -> TranslationClient:
    """Return a client of the server at an address; nothing is sent before it is used.

    Args:
        address: ``host:port``, or any gRPC target such as ``dns:///earvoice:50051``.
        credentials: for TLS; None speaks plain HTTP/2.
    """
    options = channel_options(PUBLIC_MESSAGE_LIMIT_BYTES)
    if credentials is None:
        return TranslationClient(grpc.aio.insecure_channel(address, options))
    return TranslationClient(grpc.aio.secure_channel(address, credentials, options))
