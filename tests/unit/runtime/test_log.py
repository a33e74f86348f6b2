"""Log lines are JSON with their context."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextvars import copy_context

from earvoice.runtime.authentication import set_tenant
from earvoice.runtime.log import JsonFormatter, trace_id_of


def test_a_line_carries_its_extra_fields():
    """Session and trace ids can be searched for."""
    record = logging.makeLogRecord(
        {"msg": "session ended", "session_id": "s1", "levelname": "INFO"}
    )
    line = json.loads(JsonFormatter("policy").format(record))
    assert (line["service"], line["message"], line["session_id"]) == (
        "policy",
        "session ended",
        "s1",
    )


def test_a_line_of_a_call_names_its_tenant():
    """Whoever serves several can tell them apart; elsewhere there is none."""
    record = logging.makeLogRecord({"msg": "session ended"})
    call = copy_context()
    call.run(set_tenant, "calls")
    formatter = JsonFormatter("policy")
    assert json.loads(call.run(formatter.format, record))["tenant"] == "calls"
    assert "tenant" not in json.loads(formatter.format(record))


def test_the_trace_id_is_taken_from_a_well_formed_traceparent():
    """Anything else gives none."""
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert trace_id_of(f"00-{trace_id}-00f067aa0ba902b7-01") == trace_id
    assert trace_id_of("garbage") == trace_id_of("") == ""


def test_nobody_who_reads_the_log_can_stop_a_service():
    """A pipe that nobody reads fills up; what logs into it goes on, and ends."""
    program = """
import logging
from earvoice.runtime.log import configure_logging
configure_logging("policy", "INFO")
for _ in range(3000):
    logging.getLogger("earvoice").info("x" * 999)
print("went on")
"""
    reading, writing = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=writing,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"went on\n")
    os.close(writing)
    os.close(reading)
