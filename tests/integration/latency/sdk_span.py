"""The spans of a small session, made and sent by OpenTelemetry's own SDK."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from tests.unit.latency.traced import item, segment_spans, session_span

STAGES = {"encoder_compute": 60, "decoder_compute": 30, "decision": 10}


def session_spans(name: str) -> list[dict]:
    """Two segments with a word each, and their session."""
    return [
        *segment_spans(1, STAGES, [item(500, 600, 300)], session=name),
        *segment_spans(
            2,
            STAGES,
            [item(1000, 1100, 700, commit_segment=2)],
            session=name,
            utterance_end_ms=1000,
        ),
        session_span(name, audio_ms=1000.0),
    ]


def send_spans(address: str, spans: list[dict]) -> bool:
    """Send them by OTLP/gRPC; True once all are taken. Waits for a server that is starting."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"http://{address}", insecure=True, timeout=200)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    for span in spans:
        parent = SpanContext(int(span["traceId"], 16), 1, is_remote=True, trace_flags=TraceFlags(1))
        tracer.start_span(
            span["name"],
            context=set_span_in_context(NonRecordingSpan(parent)),
            start_time=int(span["startTimeUnixNano"]),
            attributes={pair["key"]: value_of(pair["value"]) for pair in span["attributes"]},
        ).end(int(span["endTimeUnixNano"]))
    taken = provider.force_flush(60_000)
    provider.shutdown()
    return taken


def value_of(value: dict):
    ((kind, content),) = value.items()
    if kind == "arrayValue":
        return [value_of(one) for one in content["values"]]
    return int(content) if kind == "intValue" else content
