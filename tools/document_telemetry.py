"""Write `docs/telemetry.md` from the telemetry schema; `--check` only says if it is stale.

.venv/bin/python tools/document_telemetry.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from earvoice.telemetry.schema import METRICS, SERVICE_NAMES, SPANS, Attribute, Metric

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "telemetry.md"

INTRODUCTION = """\
# Telemetry

This page is generated from `services/earvoice/telemetry/schema.py` by
`tools/document_telemetry.py`; a test fails when it is stale, and others compare the spans and
metrics of running services with it. [Latency](latency.md) says what the numbers mean,
[configuration](configuration.md) lists the settings.

Audio and text are never exported.

## Where it goes

| wanted | set |
|---|---|
| spans and metrics to a collector, OTLP over gRPC | `OTEL_EXPORTER_OTLP_ENDPOINT` |
| only one of the two | `OTEL_TRACES_EXPORTER=none` or `OTEL_METRICS_EXPORTER=none` |
| spans in a file, OTLP/JSON lines, where no collector is set | `EARVOICE_…_TRACE_FILE` |
| metrics for Prometheus, at `/metrics` | `EARVOICE_…_METRICS_PORT` |
| a share of the sessions only | `EARVOICE_POLICY_TRACE_RATIO`, `EARVOICE_GATEWAY_TRACE_RATIO` |

The other `OTEL_EXPORTER_OTLP_*` variables of OpenTelemetry (headers, certificates, time-out) work
too, as do `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_METRIC_EXPORT_INTERVAL` and
`OTEL_SDK_DISABLED`.

Exporting never makes a session wait or fail. A thread of its own exports queued spans; what the
queue or the collector does not take is lost, counted in `earvoice.telemetry.dropped`, and logged
once until export works again. Each service also tries at its start whether a collector takes spans:
one that does not answer is logged within ten seconds, with the variable that names it.

## How spans hang together

A session is traced whole or not at all: the policy service samples once a session, and always
traces one whose client sends a sampled trace in `trace_context`. A session that is not traced
leaves only its `session` span, and only if it ends with an error.

A gateway samples its own streams. The sessions of a stream that it traces are children of the
stream's span, and are traced whatever the policy service's ratio; where both have one, set both. A
caller passes its trace in the header `traceparent`, or in `trace_context` in the config.

Each segment is a trace of its own, linked to the session's span. Its context travels inside the
messages to encoder and decoder. Numbers come from durations and attributes: start times of
different processes are never compared, because their wall clocks may differ by seconds. If an
utterance ends in a segment, the encoder is asked twice, and there are two of each of its spans.

Exemplars in the histograms sent to an OTLP collector lead to the traces of segments. The
Prometheus endpoint has none: `opentelemetry-exporter-prometheus` 0.66b2 does not write them.
"""


def telemetry_page() -> str:
    sections = [_resource_section(), _span_section(), _metric_section()]
    return "\n".join([INTRODUCTION, *sections])


def _resource_section() -> str:
    names = ", ".join(f"`{name}`" for name in SERVICE_NAMES.values())
    return f"Resource: `service.name` is {names}; `service.version` is EarVoice's.\n\n## Spans\n"


def _span_section() -> str:
    rows = [(f"`{s.name}`", s.service, s.parent, s.time) for s in SPANS]
    parts = [_table(("span", "service", "parent", "from when to when"), rows)]
    parts += [f"### `{s.name}`\n\n{_attributes(s.attributes)}" for s in SPANS if s.attributes]
    return "\n".join(parts)


def _attributes(attributes: Iterable[Attribute]) -> str:
    rows = [(f"`{item.name}`", item.type, item.meaning) for item in attributes]
    return _table(("attribute", "type", "meaning"), rows)


def _metric_section() -> str:
    rows = [
        (f"`{m.name}`", m.instrument, f"`{m.unit}`", ", ".join(m.services), _meaning(m))
        for m in METRICS
    ]
    return "## Metrics\n\n" + _table(("metric", "instrument", "unit", "services", "meaning"), rows)


def _meaning(metric: Metric) -> str:
    if not metric.attribute:
        return metric.meaning
    values = ", ".join(f"`{value}`" for value in metric.values)
    return f"{metric.meaning} By `{metric.attribute}`" + (f": {values}." if values else ".")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = telemetry_page()
    if not parser.parse_args().check:
        PAGE.write_text(page, encoding="utf8")
        return 0
    if PAGE.read_text(encoding="utf8") == page:
        return 0
    print(f"{PAGE.relative_to(ROOT)} is stale: run tools/document_telemetry.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
