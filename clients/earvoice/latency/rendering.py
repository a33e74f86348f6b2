"""Reports for people and programs: text for a terminal, plain values for JSON, one page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from earvoice.latency.session_report import SessionReport, SlowWord, Spread
from earvoice.latency.traced_session import TracedSegment, TracedWord

_LABEL = 29
_ID = 12
_CLOCK_NOTE = {
    "ideal": "ideal: audio alone, computation costs nothing",
    "live": "live: the wall clock of the policy service",
    "true": "true: computation only, each segment after the one before",
}


def text_report(reports: Sequence[SessionReport], problems: Sequence[str]) -> str:
    """Return all sessions, one after the other, and what was left out."""
    parts = ["\n".join(_session_lines(report)) for report in reports]
    if not parts:
        parts.append("no session in these spans")
    if problems:
        parts.append(_problem_line(problems))
    return "\n\n".join(parts)


def overview(reports: Sequence[SessionReport], problems: Sequence[str]) -> str:
    """Return a line for each session: what a live table shows."""
    head = (
        f"{'session':<13}{'clock':>6}{'audio s':>9}{'words':>7}{'lag p50':>9}{'p95':>7}"
        f"{'LAAL*':>7}{'ideal':>7}{'RTF':>7}  status"
    )
    lines = [head, *(_overview_line(report) for report in reports)]
    if problems:
        lines.append(_problem_line(problems))
    return "\n".join(lines)


def _problem_line(problems: Sequence[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"left out: {problems[0]}{more}"


def _overview_line(report: SessionReport) -> str:
    facts, session = report.session.facts, report.session
    own, ideal = report.own_clock, report.clocks["ideal"]
    return (
        f"{_shortened(facts.session_id):<13}{facts.clock:>6}{session.audio_ms / 1000:9.1f}"
        f"{len(session.words):7}{_seconds(own.lag.p50 if own.lag else None):>9}"
        f"{_seconds(own.lag.p95 if own.lag else None):>7}{_seconds(own.laal_star_ms):>7}"
        f"{_seconds(ideal.laal_star_ms):>7}{_factor(report.real_time_factor):>7}"
        f"  {facts.status}"
    )


def _session_lines(report: SessionReport) -> Iterator[str]:
    facts, session = report.session.facts, report.session
    yield f"session {facts.session_id} ({facts.status})"
    yield f"  {_setting(report)}"
    merged = sum(segment.merged for segment in session.segments)
    yield (
        f"  {session.audio_ms / 1000:.1f} s of audio, {len(session.segments)} segments"
        f" ({merged} merged away), {len(session.words)} words"
    )
    yield ""
    yield f"{_head('seconds')}{'LAAL*':>9}"
    for name, clock in report.clocks.items():
        yield f"{_lag_line(f'word lag, {name}', clock.lag)}{_seconds(clock.laal_star_ms):>9}"
    yield ""
    yield from (f"  {_CLOCK_NOTE[name]}" for name in report.clocks if name in _CLOCK_NOTE)
    yield f"  real-time factor: {_factor(report.real_time_factor)}"
    if report.stages:
        yield ""
        yield f"{_head('milliseconds of a word')}{'share':>8}"
        for stage in report.stages:
            yield f"{_ms_line(stage.stage.label, stage.spread)}{stage.share:8.1%}"
        yield ""
        yield "slowest words"
        yield from (_slow_line(word) for word in report.slowest)


def _setting(report: SessionReport) -> str:
    facts = report.session.facts
    languages = f"{facts.source} to {facts.target}" if facts.target else "languages unknown"
    given = (facts.parameters or {}).items()
    parameters = ", ".join(
        f"{name}={value}" for name, value in given if value not in ([], None, "")
    )
    policy = f"{facts.policy}({parameters})" if parameters else facts.policy
    segment = f"segments of {facts.segment_ms:g} ms" if facts.segment_ms else ""
    return ", ".join(part for part in (facts.model, languages, policy, segment) if part)


def _head(title: str) -> str:
    return f"{title:<{_LABEL}}" + "".join(
        f"{name:>9}" for name in ("p50", "p95", "p99", "mean", "max")
    )


def _lag_line(label: str, spread: Spread | None) -> str:
    values = (None,) * 5 if spread is None else _columns(spread)
    return f"{label:<{_LABEL}}" + "".join(f"{_seconds(value):>9}" for value in values)


def _ms_line(label: str, spread: Spread) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{value:9.1f}" for value in _columns(spread))


def _columns(spread: Spread) -> tuple[float, ...]:
    return spread.p50, spread.p95, spread.p99, spread.mean, spread.max


def _slow_line(slow: SlowWord) -> str:
    return (
        f"{slow.word.lag_ms / 1000:8.2f} s  word {slow.number:<5} spoken by "
        f"{slow.word.source_end_ms / 1000:.2f} s: {slow.cause.blame} "
        f"({slow.cause_ms:.0f} ms, usually {slow.usual_ms:.0f})"
    )


def _seconds(value_ms: float | None) -> str:
    return "-" if value_ms is None else f"{value_ms / 1000:.2f}"


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _shortened(session_id: str) -> str:
    return session_id if len(session_id) <= _ID else f"{session_id[: _ID - 1]}…"


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


_SCRIPTS = ("drawing", "stage", "lag_band", "lag_curve", "waterfall", "slow_word", "page")


def html_report(reports: Sequence[SessionReport], problems: Sequence[str]) -> str:
    """Return one page that needs nothing else: no network, no other file."""
    folder = files("earvoice.latency") / "page"
    text = (folder / "page.html").read_text(encoding="utf8")
    style = (folder / "page.css").read_text(encoding="utf8")
    script = "\n".join(
        (folder / f"{name}.js").read_text(encoding="utf8").strip() for name in _SCRIPTS
    )
    # "</" would end the element; in JSON the escaped form means the same.
    data = json.dumps(record_of(reports, problems), ensure_ascii=False).replace("</", "<\\/")
    parts = {"STYLE": style, "SCRIPT": script, "DATA": data}
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text
