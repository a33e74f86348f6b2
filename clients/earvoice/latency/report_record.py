"""A report as plain values: what ``--format json`` prints and the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from earvoice.latency.percentile import Spread
from earvoice.latency.session_report import SessionReport
from earvoice.latency.slow_word import SlowWord
from earvoice.latency.traced_segment import TracedSegment
from earvoice.latency.traced_word import TracedWord

Record = dict[str, Any]
_DECIMALS = 3


def record_of(reports: Sequence[SessionReport], problems: Sequence[str]) -> Record:
    """Return all sessions; times in ms, rounded to a microsecond."""
    return {"sessions": [_session(report) for report in reports], "problems": list(problems)}


def _session(report: SessionReport) -> Record:
    facts, session = report.session.facts, report.session
    return {
        "id": facts.session_id,
        "trace_id": facts.trace_id,
        "model": facts.model,
        "policy": {"name": facts.policy, "parameters": dict(facts.parameters or {})},
        "languages": {"source": facts.source, "target": facts.target},
        "segment_ms": facts.segment_ms,
        "clock": facts.clock,
        "status": facts.status,
        "audio_ms": _rounded(session.audio_ms),
        "computation_ms": _rounded(session.computation_ms),
        "real_time_factor": _rounded(report.real_time_factor),
        "word_lag_ms": {name: _spread(clock.lag) for name, clock in report.clocks.items()},
        "laal_star_ms": {
            name: _rounded(clock.laal_star_ms) for name, clock in report.clocks.items()
        },
        "segment_computation_ms": _spread(report.computation),
        "stages": [
            {
                "name": stage.stage.name,
                "label": stage.stage.label,
                "share": _rounded(stage.share),
                **(_spread(stage.spread) or {}),
            }
            for stage in report.stages
        ],
        "slowest": [_slow_word(word) for word in report.slowest],
        "utterances": [
            {"start_ms": _rounded(u.start_ms), "end_ms": _rounded(u.end_ms), "words": len(u.words)}
            for u in session.utterances()
        ],
        "segments": [_segment(segment) for segment in session.segments],
        "words": [_word(word) for word in session.words],
    }


def _segment(segment: TracedSegment) -> Record:
    return {
        "utterance": segment.utterance,
        "segment": segment.index,
        "end_ms": _rounded(segment.end_ms),
        "merged": segment.merged,
        "lateness_ms": _rounded(segment.lateness_ms),
        "items": len(segment.items),
        "duration_ms": _rounded(segment.duration_ms),
        "computation_ms": _rounded(segment.computation_ms),
        "tokens_proposed": segment.tokens_proposed,
        "tokens_committed": segment.tokens_committed,
        "failed": segment.failed,
        "trace_id": segment.trace_id,
        "stages": _stages(segment.stages),
    }


def _word(word: TracedWord) -> Record:
    return {
        "utterance": word.utterance,
        "segment": word.segment,
        "source_end_ms": _rounded(word.source_end_ms),
        "delay_ms": _rounded(word.delay_ms),
        "elapsed_ms": _rounded(word.elapsed_ms),
        "stages": _stages(word.stages),
    }


def _slow_word(slow: SlowWord) -> Record:
    return {
        "word": slow.number,
        **_word(slow.word),
        "lag_ms": _rounded(slow.word.lag_ms),
        "cause": {
            "stage": slow.cause.name,
            "label": slow.cause.label,
            "text": slow.cause.blame,
            "ms": _rounded(slow.cause_ms),
            "usual_ms": _rounded(slow.usual_ms),
        },
    }


def _spread(spread: Spread | None) -> Record | None:
    if spread is None:
        return None
    return {name: _rounded(value) for name, value in asdict(spread).items()}


def _stages(stages: Any) -> Record:
    return {name: _rounded(ms) for name, ms in stages.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)
