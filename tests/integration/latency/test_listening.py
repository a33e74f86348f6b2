"""`earvoice latency --listen`: an OTLP endpoint, fed by OpenTelemetry's own exporter."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from tests.integration.latency.sdk_span import send_spans, session_spans

COMMAND = [sys.executable, "-m", "earvoice.cli", "latency", "--format", "json"]


@pytest.mark.timeout(180)
def test_spans_are_reported_when_it_is_stopped(tmp_path):
    """Ctrl-C ends the listening, not the report; the page is written too."""
    page = tmp_path / "page.html"
    command = [*COMMAND, "--listen", "127.0.0.1:0", "--html", str(page)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = process.stderr.readline().split()[2]
        assert send_spans(address, session_spans("heard"))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    (session,) = json.loads(output)["sessions"]
    assert (session["id"], session["status"]) == ("heard", "OK")
    assert [word["elapsed_ms"] for word in session["words"]] == [600, 1100]
    assert '"heard"' in page.read_text(encoding="utf8")


def test_an_address_in_use_is_told():
    """Not a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = subprocess.run(
            [*COMMAND, "--listen", address], check=False, capture_output=True, text=True
        )
    assert result.returncode == 2
    assert f"cannot listen at {address}" in result.stderr
    assert "Traceback" not in result.stderr
