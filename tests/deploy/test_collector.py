"""The collectors: otelcol's configuration by its own logic, rotel by running it."""

import asyncio
import os
import subprocess
from contextlib import contextmanager

import pytest
import yaml

from earvoice.latency.span import TraceStore
from earvoice.latency.span_receiver import receive_spans
from earvoice.latency.traced_session import join_traces
from tests.deploy.tool import OBSERVABILITY, free_port, rotel_agent
from tests.integration.latency.sdk_span import send_spans, session_spans

COLLECTOR = OBSERVABILITY / "collector"
PATIENCE_S = 120.0


def test_every_part_of_the_pipelines_is_declared_and_used():
    """A misspelt name would stop the collector at its start."""
    configuration = yaml.safe_load((COLLECTOR / "otelcol.yml").read_text(encoding="utf8"))
    pipelines = configuration["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in pipelines for name in pipeline[kind]}
        assert used == set(configuration[kind])
    assert set(configuration["service"]["extensions"]) == set(configuration["extensions"])


def test_what_compose_names_is_there():
    """Images have a version; files exist; ports are this machine's alone."""
    compose = yaml.safe_load((OBSERVABILITY / "compose.yml").read_text(encoding="utf8"))
    for service in compose["services"].values():
        assert ":" in service["image"].rpartition("/")[2]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (OBSERVABILITY / source).exists()


@pytest.mark.timeout(300)
async def test_spans_go_through_rotel_to_the_report(tmp_path):
    """A real collector with our settings, between an SDK's exporter and our own endpoint."""
    agent = rotel_agent()
    spans = session_spans("through-rotel")
    store, arrived = TraceStore(), asyncio.Event()

    def take(found):
        store.take(found)
        if store.span_count == len(spans):
            arrived.set()

    async with receive_spans("127.0.0.1:0", take) as port:
        entry = free_port()
        with rotel(agent, entry, port, tmp_path):
            assert await asyncio.to_thread(send_spans, f"127.0.0.1:{entry}", spans)
            await asyncio.wait_for(arrived.wait(), PATIENCE_S)
    (session,) = join_traces(store)[0]
    assert (session.id, session.status) == ("through-rotel", "OK")
    assert [word.elapsed_ms for word in session.words] == [600, 1100]
    assert session.words[0].stages["encoder_compute"] == 60


@contextmanager
def rotel(agent, entry, port, folder):
    """Run rotel by rotel.env, with ports of this test's."""
    lines = (COLLECTOR / "rotel.env").read_text(encoding="utf8").splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    settings |= {
        "ROTEL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{entry}",
        "ROTEL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{free_port()}",
        "ROTEL_OTLP_EXPORTER_ENDPOINT": f"http://127.0.0.1:{port}",
    }
    with (folder / "rotel.log").open("wb") as log:
        process = subprocess.Popen(
            [agent, "start"], env={**os.environ, **settings}, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)
