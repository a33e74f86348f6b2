"""From all spans that are there to a report of each session."""

from __future__ import annotations

from collections.abc import Sequence

from earvoice.latency.session_report import SessionReport, report_session
from earvoice.latency.trace_store import TraceStore
from earvoice.latency.traced_session import join_traces


def report_store(store: TraceStore) -> tuple[Sequence[SessionReport], Sequence[str]]:
    """Return the reports, and a sentence for each thing that was left out."""
    joined = join_traces(store)
    problems = list(joined.problems)
    if store.dropped_traces:
        problems.append(f"{store.dropped_traces} old traces, to make room for new ones")
    return [report_session(session) for session in joined.sessions], problems
