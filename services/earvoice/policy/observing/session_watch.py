"""Watches one session: its trace if it is traced, its metrics if anybody reads them."""

from __future__ import annotations

from collections.abc import Callable

from earvoice.policy.backends.call import MessageTrace
from earvoice.policy.event import SegmentWorked, SessionTotals
from earvoice.policy.observer import SegmentObserver
from earvoice.policy.observing.session_meter import SessionMeter
from earvoice.policy.observing.session_trace import SessionFacts, SessionSpan, SessionTrace
from earvoice.policy.segment_record import SegmentRecord
from earvoice.telemetry.metering import exemplar_context
from earvoice.telemetry.service_telemetry import ServiceTelemetry


class SessionWatch(SegmentObserver):
    """Watches a session from its begin.

    Args:
        telemetry: the service's.
        facts: of the session.
        now_s: the session's monotonic clock.

    Attributes:
        messages: the trace that its messages to encoder and decoder belong to.
    """

    def __init__(
        self, telemetry: ServiceTelemetry, facts: SessionFacts, now_s: Callable[[], float]
    ) -> None:
        self.messages = MessageTrace(facts.traceparent, facts.traceparent)
        self._span: SessionSpan | None = None
        self._trace: SessionTrace | None = None
        self._meter: SessionMeter | None = None
        if telemetry.tracer is not None:
            self._span = SessionSpan(telemetry.tracer, facts, now_s)
            if telemetry.sampler.traces(facts.traceparent):
                context = self._span.context
                self._trace = SessionTrace(telemetry.tracer, facts, context, self.messages, now_s)
        if telemetry.has_metrics:
            rate_hertz = facts.options.audio_format.sample_rate_hertz
            self._meter = SessionMeter(telemetry.meters, facts.clock, rate_hertz)

    def begin(self, record: SegmentRecord) -> None:
        """Work on a segment begins."""
        if self._trace is not None:
            self._trace.begin(record)

    def end(self, record: SegmentRecord, worked: SegmentWorked) -> None:
        """The segment is finished."""
        if self._meter is not None:
            span = self._trace.segment if self._trace is not None else None
            self._meter.note_segment(record, worked, exemplar_context(span))
        if self._trace is not None:
            self._trace.end(worked)

    def close(self, status: str, totals: SessionTotals, error: str) -> None:
        """The session is over.

        Args:
            status: `OK`, `CANCELLED`, or the error's reason.
            totals: of the session, as far as it came.
            error: the error's reason; empty where it ended without one.
        """
        if self._meter is not None and status == "OK":
            self._meter.note_end(totals)
        if self._trace is not None:
            self._trace.end(None, error)
        if self._span is not None and (self._trace is not None or error):
            self._span.end(status, totals, error)
