"""What the tests of several services share."""

from contextlib import AsyncExitStack

import pytest

from tests.integration.policy.collector import Collector, serve_collector


@pytest.fixture
async def collector(monkeypatch):
    """One that takes everything, and that the environment names; it is given time to."""
    for exporter in ("tracing", "metric_export"):
        monkeypatch.setattr(f"earvoice.telemetry.{exporter}.CLOSE_TIMEOUT_S", 30.0)
    async with AsyncExitStack() as stack:
        serving = Collector()
        serving.gate.set()
        endpoint = await stack.enter_async_context(serve_collector(serving))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        yield serving
