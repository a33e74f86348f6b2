"""Spans of one session by the telemetry schema, as OTLP/JSON; their wall clocks are nonsense."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

SESSION = "5e55-10n"
SEGMENT_MS = 500
STAGES = (
    "merge_wait",
    "previous_segment_wait",
    "encoder_queue",
    "encoder_compute",
    "encoder_network",
    "decoder_queue",
    "decoder_compute",
    "decoder_network",
    "decision",
)
_NUMBERS = count(1)


def attribute(name, value):
    return {"key": name, "value": any_value(value)}


def any_value(value):
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
    return {"arrayValue": {"values": [any_value(item) for item in value]}}


def span(name, trace, duration_ms, after_ms=0.0, failed=False, **attributes):
    """One span; `a__b` in a name stands for `a.b`. Each service lives in a year of its own."""
    year = {"encoder.": 3, "decoder.": 7}.get(name[:8], 1)
    start_ns = year * 31_536_000 * 10**9 + round(after_ms * 1e6)
    return {
        "traceId": trace,
        "spanId": f"{next(_NUMBERS):016x}",
        "name": name,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + round(duration_ms * 1e6)),
        "attributes": [
            attribute("earvoice." + key.replace("__", "."), value)
            for key, value in attributes.items()
        ],
        "status": {"code": 2 if failed else 0},
    }


def session_span(session=SESSION, audio_ms=10_000.0, clock="live", target="de", **more):
    return span(
        "session",
        f"{next(_NUMBERS):032x}",
        audio_ms,
        session__id=session,
        session__clock=clock,
        session__audio_ms=audio_ms,
        session__status="OK",
        model__name="earvoice-en-x",
        policy__name="edatt",
        policy__parameters=json.dumps({"alpha": 0.2}),
        segment__duration_ms=SEGMENT_MS,
        language__source="en",
        language__target=target,
        **more,
    )


def item(delay_ms, elapsed_ms, source_end_ms, starts_word=True, hold_ms=0.0, commit_segment=1):
    return (delay_ms, elapsed_ms, source_end_ms, starts_word, hold_ms, commit_segment)


def segment_spans(
    index,
    stages,
    items=(),
    session=SESSION,
    utterance=0,
    start_ms=0.0,
    utterance_end_ms=None,
    commits=True,
    after_ms=0.0,
    end_ms=None,
    trace=None,
    **more,
):
    """The spans of a segment; `stages` by name, those left out are 0."""
    trace = trace or f"{next(_NUMBERS):032x}"
    ms = {stage: float(stages.get(stage, 0.0)) for stage in STAGES}
    encoder = ms["encoder_queue"] + ms["encoder_compute"] + ms["encoder_network"]
    decoder = ms["decoder_queue"] + ms["decoder_compute"] + ms["decoder_network"]
    waited = ms["merge_wait"] + ms["previous_segment_wait"]
    last = {} if utterance_end_ms is None else {"utterance__end_ms": float(utterance_end_ms)}
    columns = list(zip(*items, strict=True)) or [()] * 6
    emit = span(
        "emit",
        trace,
        0.1,
        words__delay_ms=[float(value) for value in columns[0]],
        words__elapsed_ms=[float(value) for value in columns[1]],
        words__source_end_ms=[float(value) for value in columns[2]],
        words__starts_word=list(columns[3]),
        words__hold_ms=[float(value) for value in columns[4]],
        words__commit_segment=list(columns[5]),
        stage__total_ms=sum(ms.values()),
        **{f"stage__{stage}_ms": value for stage, value in ms.items()},
    )
    return [
        span("encoder.queue", trace, ms["encoder_queue"]),
        span(
            "encoder.compute",
            trace,
            ms["encoder_compute"],
            engine__compute_ms=ms["encoder_compute"],
        ),
        span("encode", trace, encoder, after_ms=waited),
        span("decoder.queue", trace, ms["decoder_queue"]),
        span("decoder.prefill", trace, ms["decoder_compute"] / 4),
        span(
            "decoder.steps",
            trace,
            ms["decoder_compute"] * 3 / 4,
            engine__compute_ms=ms["decoder_compute"],
        ),
        span(
            "decode",
            trace,
            decoder,
            waited + encoder,
            tokens__proposed=9,
            tokens__committed=len(items),
        ),
        span("decide", trace, ms["decision"]),
        *([emit] if commits else []),
        span(
            "segment",
            trace,
            sum(ms.values()) + after_ms,
            session__id=session,
            utterance__index=utterance,
            utterance__start_ms=float(start_ms),
            segment__index=index,
            segment__end_ms=float(start_ms + index * SEGMENT_MS if end_ms is None else end_ms),
            segment__computation_ms=ms["encoder_compute"] + ms["decoder_compute"],
            **last,
            **more,
        ),
    ]


def line(spans):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def write_spans(path: Path, spans) -> Path:
    path.write_text("".join(f"{line([one])}\n" for one in spans), encoding="utf8")
    return path
