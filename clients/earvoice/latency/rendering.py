"""Reports for people and programs: text for a terminal, plain values for JSON, an HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from earvoice.latency.session_report import Record

_LABEL = 29
_ID = 12
_COLUMNS = ("p50", "p95", "p99", "mean", "max")
_CLOCK_NOTE = {
    "ideal": "ideal: audio alone, computation costs nothing",
    "live": "live: the wall clock of the policy service",
    "true": "true: computation only, each segment after the one before",
}


def text_report(reports: Sequence[Record], problems: Sequence[str]) -> str:
    """Return all sessions, one after the other, and what was left out."""
    parts = ["\n".join(_session_lines(report)) for report in reports]
    if not parts:
        parts.append("no session in these spans")
    if problems:
        parts.append(_problem_line(problems))
    return "\n\n".join(parts)


def overview(reports: Sequence[Record], problems: Sequence[str]) -> str:
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


def _overview_line(report: Record) -> str:
    lag, laal_star = report["word_lag_ms"][report["clock"]] or {}, report["laal_star_ms"]
    return (
        f"{_shortened(report['id']):<13}{report['clock']:>6}{report['audio_ms'] / 1000:9.1f}"
        f"{len(report['words']):7}{_seconds(lag.get('p50')):>9}{_seconds(lag.get('p95')):>7}"
        f"{_seconds(laal_star[report['clock']]):>7}{_seconds(laal_star['ideal']):>7}"
        f"{_factor(report['real_time_factor']):>7}  {report['status']}"
    )


def _session_lines(report: Record) -> Iterator[str]:
    clocks, segments = report["word_lag_ms"], report["segments"]
    yield f"session {report['id']} ({report['status']})"
    yield f"  {_setting(report)}"
    merged = sum(segment["merged"] for segment in segments)
    yield (
        f"  {report['audio_ms'] / 1000:.1f} s of audio, {len(segments)} segments"
        f" ({merged} merged away), {len(report['words'])} words"
    )
    yield ""
    yield f"{_row('seconds', _COLUMNS)}{'LAAL*':>9}"
    for name, lag in clocks.items():
        lags = [_seconds(lag[column] if lag else None) for column in _COLUMNS]
        yield f"{_row(f'word lag, {name}', lags)}{_seconds(report['laal_star_ms'][name]):>9}"
    yield ""
    yield from (f"  {_CLOCK_NOTE[name]}" for name in clocks if name in _CLOCK_NOTE)
    yield f"  real-time factor: {_factor(report['real_time_factor'])}"
    if report["stages"]:
        yield ""
        yield f"{_row('milliseconds of a word', _COLUMNS)}{'share':>8}"
        for stage in report["stages"]:
            times = [f"{stage[column]:.1f}" for column in _COLUMNS]
            yield f"{_row(stage['label'], times)}{stage['share']:8.1%}"
        yield ""
        yield "slowest words"
        yield from map(_slow_line, report["slowest"])


def _setting(report: Record) -> str:
    source, target = report["languages"].values()
    languages = f"{source} to {target}" if target else "languages unknown"
    policy, given = report["policy"].values()
    parameters = ", ".join(
        f"{name}={value}" for name, value in given.items() if value not in ([], None, "")
    )
    chosen = f"{policy}({parameters})" if parameters else policy
    segment = f"segments of {report['segment_ms']:g} ms" if report["segment_ms"] else ""
    return ", ".join(part for part in (report["model"], languages, chosen, segment) if part)


def _row(label: str, cells: Iterable[str]) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>9}" for cell in cells)


def _slow_line(slow: Record) -> str:
    cause = slow["cause"]
    return (
        f"{slow['lag_ms'] / 1000:8.2f} s  word {slow['word']:<5} spoken by "
        f"{slow['source_end_ms'] / 1000:.2f} s: {cause['text']} "
        f"({cause['ms']:.0f} ms, usually {cause['usual_ms']:.0f})"
    )


def _seconds(value_ms: float | None) -> str:
    return "-" if value_ms is None else f"{value_ms / 1000:.2f}"


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _shortened(session_id: str) -> str:
    return session_id if len(session_id) <= _ID else f"{session_id[: _ID - 1]}…"


_DECIMALS = 3


def record_of(reports: Sequence[Record], problems: Sequence[str]) -> Record:
    """Return all sessions; times in ms, rounded to a microsecond."""
    told: Record = _rounded({"sessions": reports, "problems": problems})
    return told


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, _DECIMALS)
        case dict():
            # A policy's parameters are not rounded.
            return {n: v if n == "parameters" else _rounded(v) for n, v in value.items()}
        case list() | tuple():
            return [_rounded(inner) for inner in value]
    return value


_SCRIPTS = ("drawing", "stage", "lag_band", "lag_curve", "waterfall", "slow_word", "page")


def html_report(reports: Sequence[Record], problems: Sequence[str]) -> str:
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
