"""What all dialects share: streams through the policy service, readers, limits, counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial

from opentelemetry.trace import SpanKind

from earvoice.client import (
    AccessDeniedError,
    TranslationClient,
    TranslationError,
    TranslationEvent,
    connect,
)
from earvoice.gateway.access import Admission, Gatekeeper
from earvoice.gateway.connection import CANCELLED, is_final, reason_of
from earvoice.gateway.messages import StartMessage
from earvoice.gateway.published import StreamDirectory
from earvoice.gateway.settings import GatewaySettings
from earvoice.gateway.speaker import Speaker
from earvoice.runtime.errors import (
    EarvoiceError,
    NotReadyError,
    PermissionDeniedError,
    SessionLimitError,
)
from earvoice.runtime.settings import SettingsError
from earvoice.telemetry.service_telemetry import ServiceTelemetry
from earvoice.telemetry.trace_context import (
    draw_traced,
    new_child,
    new_root,
    read_traceparent,
    traceparent_of,
)

RETRY_MS = 1_000
_LOG = logging.getLogger(__name__)


@contextmanager
def _stream_span(
    telemetry: ServiceTelemetry, traceparent: str
) -> Iterator[tuple[str, dict[str, str | float | Sequence[str]]]]:
    """Trace a speaker's stream: its span is the parent of the policy service's sessions.

    Args:
        traceparent: of the caller, or empty.

    Yields:
        the traceparent to send to the policy service, and the span's attributes, to be filled in.
    """
    tracer = telemetry.tracer
    if tracer is None or not draw_traced(traceparent, telemetry.trace_ratio):
        yield traceparent, {}
        return
    batch = tracer.batch()
    parent = read_traceparent(traceparent)
    context = new_child(parent) if parent else new_root()
    begin_s = time.perf_counter()
    attributes: dict[str, str | float | Sequence[str]] = {}
    status = "OK"
    try:
        yield traceparent_of(context), attributes
    except BaseException as error:
        status = reason_of(error)
        raise
    finally:
        failed = status not in ("OK", CANCELLED)
        attributes["earvoice.session.status"] = status
        if failed:
            attributes["error.type"] = status
        interval_s = (begin_s, time.perf_counter())
        kind = SpanKind.SERVER
        batch.add("stream", context, parent, interval_s, attributes, kind=kind, failed=failed)
        tracer.put(batch.spans)


class Door:
    """Opens streams for callers.

    Raises:
        SettingsError: the policy service cannot be called with these settings.

    Attributes:
        socket_count: open connections.
        speaker_count: how many of them speak.
        is_draining: no new connection is accepted.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.client = _connect(settings)
        self.gatekeeper = Gatekeeper(settings, hands_on=self.client.keeps_secrets)
        self.directory = StreamDirectory(settings.kept_lines, settings.stream_linger_ms / 1000)
        self.socket_count = 0
        self.speaker_count = 0
        self.refused_count = 0
        self.is_draining = False
        self._trouble = ""
        self._sockets: set[asyncio.Task[object]] = set()
        self._telemetry = ServiceTelemetry("gateway", settings)
        observe = self._telemetry.meters.observe
        observe("earvoice.gateway.sockets", lambda: {"": self.socket_count})
        observe("earvoice.gateway.speakers", lambda: {"": self.speaker_count})
        observe("earvoice.gateway.readers", lambda: {"": self.directory.reader_count})
        observe("earvoice.gateway.refused", lambda: {"": self.refused_count})

    async def check_server(self, timeout_s: float) -> None:
        """Ask the policy service for a sign of life; what is wrong with it is logged once."""
        try:
            with suppress(AccessDeniedError):  # one that asks for a token is up
                await self.client.list_models(timeout_s)
        except TranslationError as error:
            if error.message != self._trouble:
                self._trouble = error.message
                _LOG.warning("the policy service cannot be used", extra={"cause": error.message})
            raise
        self._trouble = ""

    async def drain(self) -> None:
        """Accept nobody new, and give running connections the drain grace to end."""
        self.is_draining = True
        grace_s = self.settings.drain_grace_ms / 1000
        _LOG.info("draining", extra={"grace_s": grace_s, "connections": self.socket_count})
        if self._sockets:
            await asyncio.wait(self._sockets, timeout=grace_s)
        ended, self._sockets = self._sockets, set()
        if ended:
            told = {"grace_s": grace_s, "connections": len(ended)}
            _LOG.warning("connections still open after the grace", extra=told)
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
            # The grace is over: the caller gets an error, and the server has no fault to log.
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
        *,
        resumable: bool = True,
    ) -> AsyncIterator[Speaker]:
        """Open a stream; it ends with the context.

        Args:
            traceparent: of the caller's request; one in its config takes precedence.
            resumable: readers wait for a speaker whose connection is lost.
        """
        publish = None
        if start.publish:
            admission.check_stream(start.publish)
            # Not before the policy service has let the caller in: this may end another stream.
            publish = partial(
                self.directory.open,
                start.publish,
                start.marks,
                start.resume_points,
            )
        elif admission.stream != "*":
            raise PermissionDeniedError(
                f"the access token is for the stream {admission.stream!r}: publish under it"
            )
        client = self.client.with_token(admission.server_token)
        begun_s = time.monotonic()
        with _stream_span(self._telemetry, start.options.traceparent or traceparent) as (
            told_traceparent,
            attributes,
        ):
            traced = replace(start.options, traceparent=told_traceparent)
            meters = self._telemetry.meters
            speaker = Speaker(client, traced, start.resume_points, publish, meters, start.tracks)
            self.speaker_count += 1
            status, lost = "OK", False
            try:
                yield speaker
            except BaseException as error:
                status, lost = reason_of(error), resumable and not is_final(error)
                raise
            finally:
                self.speaker_count -= 1
                if speaker.publication is not None:
                    self.directory.close(speaker.publication, lost=lost)
                attributes |= {
                    "earvoice.gateway.languages": list(speaker.languages),
                    "earvoice.gateway.sessions": speaker.session_ids,
                    "earvoice.gateway.longest_relay_ms": speaker.longest_relay_ms,
                    "earvoice.session.words": speaker.word_count,
                }
                _LOG.info(
                    "stream ended",
                    extra={
                        "stream": start.publish,
                        "sessions": speaker.session_ids,
                        "seconds": round(time.monotonic() - begun_s, 3),
                        "words": speaker.word_count,
                        "status": status,
                    },
                )

    async def caption_call(
        self,
        start: StartMessage,
        admission: Admission,
        listen: Callable[[Speaker], Awaitable[None]],
        traceparent: str = "",
    ) -> None:
        """Caption a telephone call, which takes no words back: its readers get them.

        Args:
            listen: sends the call's audio; once it returns or fails, the last words still come.
        """

        async def hear(speaker: Speaker) -> None:
            fault = None
            try:
                await listen(speaker)
            except EarvoiceError as error:
                fault = error
            speaker.leave()
            await speaker.end(fault)

        async def tell_nobody(_: str, event: TranslationEvent, __: bytes) -> None:
            del event

        async with (
            self.open(start, admission, traceparent, resumable=False) as speaker,
            asyncio.TaskGroup() as group,
        ):
            hearing = group.create_task(hear(speaker))
            await speaker.run(tell_nobody)
            hearing.cancel()


def _going_away() -> NotReadyError:
    return NotReadyError("the gateway is going away", retry_after_ms=RETRY_MS)


def _connect(settings: GatewaySettings) -> TranslationClient:
    try:
        client = connect(settings.server, tls=settings.server_tls)
    except ValueError as error:
        raise SettingsError(f"{settings.variable('server')}: {error}") from error
    if settings.server_token and not client.keeps_secrets:
        raise SettingsError(
            f"{settings.variable('server_token')}: is sent to {settings.server} only over TLS, "
            f"so that nobody else can read it; set {settings.variable('server_tls_ca_file')}"
        )
    return client
