"""What all dialects share: streams through the policy service, readers, limits, counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind

from earvoice.client import TranslationClient, connect
from earvoice.gateway.access import Admission, Gatekeeper
from earvoice.gateway.connection import CANCELLED, reason_of
from earvoice.gateway.messages import StartMessage
from earvoice.gateway.published import StreamDirectory
from earvoice.gateway.settings import GatewaySettings
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import NotReadyError, PermissionDeniedError, SessionLimitError
from earvoice.runtime.settings import SettingsError
from earvoice.telemetry.service_telemetry import ServiceTelemetry
from earvoice.telemetry.trace_context import (
    draw_traced,
    new_child,
    new_root,
    read_traceparent,
    traceparent_of,
)

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import SpanBatch  # its SDK is imported where it is wanted

RETRY_MS = 1_000
_LOG = logging.getLogger(__name__)


class StreamSpan:
    """A speaker's stream in the traces: the policy service's sessions hang on it.

    Args:
        traceparent: of the caller, or empty.

    Attributes:
        traceparent: what the policy service is told.
    """

    def __init__(self, telemetry: ServiceTelemetry, traceparent: str) -> None:
        self.traceparent = traceparent
        self._tracer = telemetry.tracer
        self._begin_s = time.perf_counter()
        self._batch: SpanBatch | None = None
        if self._tracer is not None and draw_traced(traceparent, telemetry.trace_ratio):
            self._batch = self._tracer.batch()
            self._parent = read_traceparent(traceparent)
            self._context = new_child(self._parent) if self._parent else new_root()
            self.traceparent = traceparent_of(self._context)

    def end(self, speaker: Speaker, error: BaseException | None) -> None:
        if self._tracer is None or self._batch is None:
            return
        attributes: dict[str, str | float | Sequence[str]] = {
            "earvoice.gateway.languages": list(speaker.languages),
            "earvoice.gateway.sessions": speaker.session_ids,
            "earvoice.gateway.longest_relay_ms": speaker.longest_relay_ms,
            "earvoice.session.status": reason_of(error) if error else "OK",
            "earvoice.session.words": speaker.word_count,
        }
        failed = error is not None and attributes["earvoice.session.status"] != CANCELLED
        if failed:
            attributes["error.type"] = attributes["earvoice.session.status"]
        interval_s = (self._begin_s, time.perf_counter())
        self._batch.add(
            "stream",
            self._context,
            self._parent,
            interval_s,
            attributes,
            kind=SpanKind.SERVER,
            failed=failed,
        )
        self._tracer.put(self._batch.spans)


class Door:
    """Opens streams for callers.

    Raises:
        SettingsError: the policy service cannot be called like this.

    Attributes:
        socket_count: connections that are open.
        speaker_count: of these, how many speak.
        is_draining: nobody new is let in.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.client = _connect(settings)
        server_token = settings.server_token.get_secret_value() if settings.server_token else ""
        token_key = settings.token_key.get_secret_value() if settings.token_key else ""
        self.gatekeeper = Gatekeeper(
            token_key,
            server_token,
            settings.allowed_origins,
            hands_on=self.client.keeps_secrets,
        )
        self.directory = StreamDirectory(settings.kept_lines, settings.stream_linger_ms / 1000)
        self.socket_count = 0
        self.speaker_count = 0
        self.refused_count = 0
        self.is_draining = False
        self._sockets: set[asyncio.Task[object]] = set()
        self._telemetry = ServiceTelemetry("gateway", settings)
        observe = self._telemetry.meters.observe
        observe("earvoice.gateway.sockets", lambda: {"": self.socket_count})
        observe("earvoice.gateway.speakers", lambda: {"": self.speaker_count})
        observe("earvoice.gateway.readers", lambda: {"": self.directory.reader_count})
        observe("earvoice.gateway.refused", lambda: {"": self.refused_count})

    async def drain(self) -> None:
        """Let nobody in, and running connections end for as long as the grace lasts."""
        self.is_draining = True
        if self._sockets:
            await asyncio.wait(self._sockets, timeout=self.settings.drain_grace_ms / 1000)
        ended, self._sockets = self._sockets, set()
        for task in ended:
            task.cancel()
        if ended:
            await asyncio.wait(ended)

    async def close(self) -> None:
        await self.client.close()
        await asyncio.to_thread(self._telemetry.close)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a connection while it is open."""
        if self.is_draining:
            self.refused_count += 1
            raise _going_away()
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
        except asyncio.CancelledError as error:
            if task in self._sockets:
                raise
            # The grace is over: whoever called is told, and the server has no fault to log.
            task.uncancel()
            raise _going_away() from error
        finally:
            self.socket_count -= 1
            self._sockets.discard(task)

    @asynccontextmanager
    async def open(
        self,
        start: StartMessage,
        admission: Admission,
        traceparent: str = "",
    ) -> AsyncIterator[Speaker]:
        """Give a stream; it ends with the context.

        Args:
            traceparent: of the caller's request; that of its config comes first.
        """
        published = None
        if start.publish:
            admission.check_stream(start.publish)
            published = self.directory.open(
                start.publish, start.marks, resumes=bool(start.resume_points)
            )
        elif admission.stream != "*":
            raise PermissionDeniedError(
                f"the access token is for the stream {admission.stream!r}: publish under it"
            )
        client = self.client.with_token(admission.server_token)
        span = StreamSpan(self._telemetry, start.options.traceparent or traceparent)
        traced = replace(start.options, traceparent=span.traceparent)
        speaker = Speaker(client, traced, start.resume_points, published, self._telemetry.meters)
        self.speaker_count += 1
        begun_s = time.monotonic()
        error: BaseException | None = None
        try:
            yield speaker
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.speaker_count -= 1
            if published is not None:
                self.directory.end(published)
            span.end(speaker, error)
            _LOG.info(
                "stream ended",
                extra={
                    "sessions": speaker.session_ids,
                    "seconds": round(time.monotonic() - begun_s, 3),
                    "words": speaker.word_count,
                },
            )


def _going_away() -> NotReadyError:
    return NotReadyError("the gateway is going away", retry_after_ms=RETRY_MS)


def _connect(settings: GatewaySettings) -> TranslationClient:
    try:
        client = connect(settings.server, tls=settings.server_tls)
    except ValueError as error:
        raise SettingsError(f"{settings.variable('server')}: {error}") from error
    if settings.server_token and not client.keeps_secrets:
        raise SettingsError(
            f"{settings.variable('server_token')}: is shown to {settings.server} only over TLS, "
            f"for everybody could read it; set {settings.variable('server_tls_ca_file')}"
        )
    return client
