"""What all dialects share: streams through the policy service, readers, limits, counts."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from earvoice.client import connect
from earvoice.gateway.access import Gatekeeper
from earvoice.gateway.published import StreamDirectory
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import NotReadyError, PermissionDeniedError, SessionLimitError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from earvoice.client import ResumePoint, TranslationClient, TranslationOptions
    from earvoice.gateway.access import Admission
    from earvoice.gateway.settings import GatewaySettings

RETRY_MS = 1_000
_LOG = logging.getLogger(__name__)


class Door:
    """Opens streams for callers.

    Attributes:
        socket_count: connections that are open.
        speaker_count: of these, how many speak.
        is_draining: nobody new is let in.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        server_token = settings.server_token.get_secret_value() if settings.server_token else ""
        token_key = settings.token_key.get_secret_value() if settings.token_key else ""
        self.gatekeeper = Gatekeeper(token_key, server_token, settings.allowed_origins)
        self.directory = StreamDirectory(settings.kept_lines, settings.stream_linger_ms / 1000)
        self.socket_count = 0
        self.speaker_count = 0
        self.refused_count = 0
        self.is_draining = False
        self._client = connect(settings.server, tls=settings.server_tls)
        self._sockets: set[asyncio.Task[object]] = set()

    @property
    def client(self) -> TranslationClient:
        return self._client

    async def drain(self) -> None:
        """Let nobody in, and running connections end for as long as the grace lasts."""
        self.is_draining = True
        if self._sockets:
            await asyncio.wait(self._sockets, timeout=self.settings.drain_grace_ms / 1000)
        ended = set(self._sockets)
        for task in ended:
            task.cancel()
        if ended:
            await asyncio.wait(ended)

    async def close(self) -> None:
        await self._client.close()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a connection while it is open."""
        if self.is_draining:
            self.refused_count += 1
            raise NotReadyError("the gateway is going away", retry_after_ms=RETRY_MS)
        if self.socket_count >= self.settings.max_sockets:
            self.refused_count += 1
            raise SessionLimitError(
                f"{self.socket_count} connections are open, all that are allowed",
                retry_after_ms=RETRY_MS,
            )
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a connection is served in a task
        self.socket_count += 1
        self._sockets.add(task)
        try:
            yield
        finally:
            self.socket_count -= 1
            self._sockets.discard(task)

    @asynccontextmanager
    async def open(
        self,
        options: TranslationOptions,
        admission: Admission,
        publish: str = "",
        resume_points: Mapping[str, ResumePoint] | None = None,
    ) -> AsyncIterator[Speaker]:
        """Give a stream; it ends with the context.

        Args:
            publish: name under which others may read it; empty for nobody.
            resume_points: by language, where the stream goes on.
        """
        published = None
        if publish:
            admission.check_stream(publish)
            published = self.directory.open(publish, resumes=bool(resume_points))
        elif admission.stream != "*":
            raise PermissionDeniedError(
                f"the access token is for the stream {admission.stream!r}: publish under it"
            )
        client = self._client.with_token(admission.server_token)
        speaker = Speaker(client, options, resume_points, published)
        self.speaker_count += 1
        begun_s = time.monotonic()
        try:
            yield speaker
        finally:
            self.speaker_count -= 1
            if published is not None:
                self.directory.end(published)
            _LOG.info(
                "stream ended",
                extra={
                    "sessions": speaker.session_ids,
                    "seconds": round(time.monotonic() - begun_s, 3),
                    "words": speaker.word_count,
                },
            )
