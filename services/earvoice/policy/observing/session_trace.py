"""A traced session: one trace a segment, each linked to the session's own span."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanContext, SpanKind

from earvoice.policy.backends.call import MessageTrace
from earvoice.policy.decisions.factory import make_policy
from earvoice.policy.event import SegmentWorked, SessionTotals
from earvoice.policy.observing.segment_spans import SegmentContexts, SegmentSpans
from earvoice.policy.segment_record import SegmentRecord
from earvoice.policy.stream_options import StreamOptions
from earvoice.telemetry.moment import Interval, WallAnchor
from earvoice.telemetry.trace_context import new_child, new_root, read_traceparent, traceparent_of

if TYPE_CHECKING:
    from earvoice.telemetry.tracing import Tracer


@dataclass(frozen=True)
class SessionFacts:
    """What a session's span says from the start.

    Attributes:
        session_id: as logs have it.
        traceparent: of the client, or empty.
        options: what the stream asked for.
        model_name: served.
        model_hash: of its checkpoint.
        source_language: BCP-47 tag.
    """

    session_id: str
    traceparent: str
    options: StreamOptions
    model_name: str
    model_hash: str
    source_language: str

    @property
    def clock(self) -> str:
        """On which clock the session's times are."""
        return "live" if self.options.merges_segments else "true"


class SessionSpan:
    """The session's own span; of a session that is not traced it is made only for an error.

    Args:
        tracer: takes it.
        facts: what it says.
        now_s: monotonic clock.

    Attributes:
        context: the span's.
    """

    def __init__(self, tracer: Tracer, facts: SessionFacts, now_s: Callable[[], float]) -> None:
        self._tracer = tracer
        self._facts = facts
        self._now_s = now_s
        self._anchor = WallAnchor()
        self._begin_s = now_s()
        self._parent = read_traceparent(facts.traceparent)
        self.context = new_child(self._parent) if self._parent else new_root()

    def end(self, status: str, totals: SessionTotals, error: str) -> None:
        """Hand the span on.

        Args:
            status: `OK`, `CANCELLED`, or the error's reason.
            totals: of the session, as far as it came.
            error: the error's reason; empty where it is none.
        """
        options = self._facts.options
        attributes: dict[str, str | int | float] = {
            "earvoice.session.id": self._facts.session_id,
            "earvoice.model.name": self._facts.model_name,
            "earvoice.model.hash": self._facts.model_hash,
            "earvoice.policy.name": make_policy(options.policy).name,
            "earvoice.policy.parameters": json.dumps(asdict(options.policy)),
            "earvoice.segment.duration_ms": options.segment_ms,
            "earvoice.session.clock": self._facts.clock,
            "earvoice.language.source": self._facts.source_language,
            "earvoice.language.target": options.target_language_code,
            "earvoice.session.status": status,
            "earvoice.session.audio_ms": totals.audio_samples
            * 1000
            / options.audio_format.sample_rate_hertz,
            "earvoice.session.words": totals.word_count,
            "earvoice.session.computation_ms": totals.computation_ms,
            "earvoice.session.replays": totals.replay_count,
        }
        if error:
            attributes["error.type"] = error
        batch = self._tracer.batch(self._anchor)
        interval = Interval(self._begin_s, self._now_s())
        batch.add(
            "session",
            self.context,
            self._parent,
            interval,
            attributes,
            kind=SpanKind.SERVER,
            failed=bool(error),
        )
        self._tracer.export(batch)


class SessionTrace:
    """The segments' traces of a traced session.

    Args:
        tracer: takes the spans.
        facts: of the session.
        session: its span.
        messages: is told which span the next messages belong to.
        now_s: the session's monotonic clock.
    """

    def __init__(
        self,
        tracer: Tracer,
        facts: SessionFacts,
        session: SpanContext,
        messages: MessageTrace,
        now_s: Callable[[], float],
    ) -> None:
        self._tracer = tracer
        self._messages = messages
        self._now_s = now_s
        rate_hertz = facts.options.audio_format.sample_rate_hertz
        self._spans = SegmentSpans(facts.session_id, session, rate_hertz)
        self._open: tuple[SegmentRecord, SegmentContexts, WallAnchor] | None = None
        messages.encoder = messages.decoder = traceparent_of(session)

    @property
    def segment(self) -> SpanContext | None:
        """The span of the segment that is worked on."""
        return self._open[1].root if self._open else None

    def begin(self, record: SegmentRecord) -> None:
        """Begin a segment's trace."""
        contexts = SegmentContexts()
        self._open = record, contexts, WallAnchor()
        self._messages.encoder = traceparent_of(contexts.encode)
        self._messages.decoder = traceparent_of(contexts.decode)

    def end(self, worked: SegmentWorked | None, error: str = "") -> None:
        """Hand on the spans of the segment that is worked on, if there is one.

        Args:
            worked: what it came to; None for a segment that was not finished.
            error: the reason for that; empty where it is no error.
        """
        if self._open is None:
            return
        record, contexts, anchor = self._open
        self._open = None
        batch = self._tracer.batch(anchor)
        self._spans.write(batch, contexts, record, self._now_s(), worked, error)
        self._tracer.export(batch)
