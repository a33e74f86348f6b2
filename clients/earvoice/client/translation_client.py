"""The client: ``async with connect("127.0.0.1:50051") as client``."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import grpc

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1.speech_translation_service_pb2_grpc import SpeechTranslationServiceStub
from earvoice.client.errors import ServerUnavailableError, translate_failure
from earvoice.client.event import TranslationEvent
from earvoice.client.model_description import ModelCatalog, read_catalog
from earvoice.client.options import TranslationOptions, TranslationUpdate
from earvoice.client.server_channels import (
    ServerChannel,
    ServerChannels,
    Target,
    split_address,
    translate_closing,
)
from earvoice.client.translation_stream import ResumePoint, TranslationStream
from earvoice.runtime.authentication import is_showable
from earvoice.runtime.tls import ChannelTls, is_local_target
from earvoice.runtime.transport import PUBLIC_MESSAGE_LIMIT_BYTES, bearer_metadata, open_channel

LIST_MODELS_TIMEOUT_S = 10.0
AFFINITY_HEADER = "x-earvoice-session"
"""The same for all calls of a session, so that a balancer may send them to one replica."""


class TranslationClient:
    """A connection to a SpeechTranslationService; any number of translations may share it.

    Args:
        read_token: returns the bearer token for the next call; None sends none.

    Attributes:
        keeps_secrets: the connection is encrypted or local; otherwise no token is sent.
    """

    def __init__(
        self,
        channels: ServerChannels,
        now_s: Callable[[], float] = time.monotonic,
        read_token: Callable[[], str] | None = None,
        *,
        keeps_secrets: bool = False,
    ) -> None:
        self._channels = channels
        self.keeps_secrets = keeps_secrets
        self._now_s = now_s
        self._read_token = read_token

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
        await self._channels.close()

    def with_token(self, token: str) -> TranslationClient:
        """Return a client on the same connection that sends another token; do not close it.

        Raises:
            ValueError: the token would leave this machine in the clear.
        """
        if token and not self.keeps_secrets:
            raise ValueError(
                "token: is sent only over TLS (connect's tls), so that nobody else can read it"
            )
        return TranslationClient(
            self._channels, self._now_s, _reader(token), keeps_secrets=self.keeps_secrets
        )

    def open(
        self,
        audio: AsyncIterable[bytes | TranslationUpdate],
        options: TranslationOptions,
        resume_point: ResumePoint | None = None,
    ) -> TranslationStream:
        """Return a session that can be changed while it runs: ``update``; read its ``events``.

        The audio comes in ``options.audio``'s format, cut anywhere, with updates in their place;
        its end ends the session. With the ``resume_point`` of another client's session, it is that
        session's audio from ``acknowledged_samples`` on.
        """
        return TranslationStream(
            self._channels, self._call, audio, options, self._now_s, resume_point
        )

    async def translate(
        self, audio: AsyncIterable[bytes | TranslationUpdate], options: TranslationOptions
    ) -> AsyncGenerator[TranslationEvent, None]:
        """Translate one stream of audio.

        The first event is ``Started``, the last ``Summary``. Close the generator
        (``contextlib.aclosing``) to leave early: the session is cancelled then. About the audio
        see ``open``.

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
        lost: ServerChannel | None = None
        for left in reversed(range(await self._channels.count())):
            async with self._channels.use(lost) as channel:
                stub = SpeechTranslationServiceStub(channel.channel)
                try:
                    with translate_closing():
                        models = await stub.ListModels(
                            api.ListModelsRequest(), timeout=timeout_s, metadata=self._metadata()
                        )
                    return read_catalog(models)
                except grpc.aio.AioRpcError as failure:
                    error = translate_failure(failure)
                    if not (left and isinstance(error, ServerUnavailableError)):
                        raise error from failure
                    lost = channel
        raise AssertionError  # there is at least one address

    def _call(self, channel: ServerChannel, affinity: str) -> Any:
        stub = SpeechTranslationServiceStub(channel.channel)
        metadata = (*self._metadata(), (AFFINITY_HEADER, affinity))
        return stub.StreamingTranslate(metadata=metadata)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return bearer_metadata(self._read_token()) if self._read_token else ()


def connect(
    address: str, *, tls: ChannelTls | None = None, token: str | Callable[[], str] = ""
) -> TranslationClient:
    """Return a client of the server at an address; nothing is sent before it is used.

    Args:
        address: ``host:port``, or any gRPC target; several, separated by commas, or
            ``dns:///name:port``, which stands for all addresses of the name. When one is lost,
            its sessions continue at the next.
        tls: how to authenticate the server; None speaks plain HTTP/2.
        token: the bearer token to send, or a function that returns it for each call.

    Raises:
        TlsFileError: a certificate, key or authority cannot be used.
        ValueError: the token would leave this machine in the clear or has characters that no header
            can carry, or an address is empty.
    """
    parts = split_address(address)
    keeps_secrets = tls is not None or all(map(is_local_target, parts))
    if token and not keeps_secrets:
        raise ValueError(
            f"token: is sent to {address} only over TLS (tls), so that nobody else can read it"
        )
    if tls is not None:
        tls.check()

    def open_to(target: Target) -> grpc.aio.Channel:
        server, name = target
        known = tls
        if tls is not None and name and not tls.server_name:
            known = replace(tls, server_name=name)
        return open_channel(server, PUBLIC_MESSAGE_LIMIT_BYTES, known)

    channels = ServerChannels(parts, open_to)
    return TranslationClient(channels, read_token=_reader(token), keeps_secrets=keeps_secrets)


def _reader(token: str | Callable[[], str]) -> Callable[[], str] | None:
    if callable(token):
        return lambda: _sendable(token())
    given = _sendable(token)
    return (lambda: given) if given else None


def _sendable(token: str) -> str:
    """Return a token without the line break at the end of the file that it may come from."""
    token = token.strip()
    if not is_showable(token):
        raise ValueError("token: has characters other than printable ASCII")
    return token
