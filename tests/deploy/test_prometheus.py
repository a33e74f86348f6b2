"""Prometheus' configuration and rules, held against the schema and by Prometheus itself."""

import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest
import yaml
from opentelemetry.sdk.resources import Resource

from earvoice.telemetry.metering import Meters
from earvoice.telemetry.metric_export import MetricExport
from earvoice.telemetry.schema import METRICS
from earvoice.telemetry.service_telemetry import ExportLosses
from tests.deploy.metric_name import names_in, prometheus_names
from tests.deploy.tool import OBSERVABILITY, free_ports, output_of, program

FOLDER = OBSERVABILITY / "prometheus"
RULES = FOLDER / "rules" / "earvoice.yml"
# Prometheus scrapes every second here; much longer means that it never will.
PATIENCE_S = 60.0


def rules():
    groups = yaml.safe_load(RULES.read_text(encoding="utf8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_read_metrics_that_exist():
    """Under the names that the schema's metrics get in Prometheus; or recorded by another rule."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    known = recorded | {"up"} | prometheus_names(METRICS)
    for rule in rules():
        assert names_in(rule["expr"]) <= known, rule


def test_the_objective_is_a_bound_of_the_buckets():
    """Otherwise no bucket would match, and no word ever be late."""
    bounds = {
        bound for metric in METRICS if metric.name == "earvoice.word.lag" for bound in metric.bounds
    }
    found = {int(bound) for bound in re.findall(r'le=~"(\d+)\(', RULES.read_text(encoding="utf8"))}
    assert found
    assert found <= bounds


def test_every_alert_has_a_unit_test():
    """An alert that never fires in its tests is not known to fire."""
    tests = yaml.safe_load((FOLDER / "tests" / "earvoice_test.yml").read_text(encoding="utf8"))
    fired = {
        alert["alertname"]
        for test in tests["tests"]
        for alert in test["alert_rule_test"]
        if alert["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


def test_the_services_ports_are_those_of_the_readme():
    """Targets and the README's command name the same ports."""
    readme = (OBSERVABILITY / "README.md").read_text(encoding="utf8")
    for service in ("policy", "encoder", "decoder"):
        (target,) = yaml.safe_load((FOLDER / "targets" / f"{service}.yml").read_text("utf8"))
        port = target["targets"][0].rpartition(":")[2]
        assert f"EARVOICE_{service.upper()}_METRICS_PORT={port}" in readme


def test_the_configuration_is_valid():
    """By promtool, with its rules."""
    promtool = program("promtool")
    output_of(promtool, "check", "config", FOLDER / "prometheus.yml")


def test_the_alerts_fire_when_they_should():
    """By promtool's unit tests."""
    promtool = program("promtool")
    assert "SUCCESS" in output_of(
        promtool, "test", "rules", "earvoice_test.yml", folder=FOLDER / "tests"
    )


@pytest.mark.timeout(180)
def test_prometheus_reads_a_services_metrics_and_raises_an_alert(tmp_path):
    """A service that refuses a session, our configuration, and a real Prometheus between."""
    folder = tmp_path / "prometheus"
    shutil.copytree(FOLDER, folder)
    configuration = (folder / "prometheus.yml").read_text(encoding="utf8").replace("15s", "1s")
    (folder / "prometheus.yml").write_text(configuration, encoding="utf8")
    export = MetricExport(Resource.create({}), ExportLosses(), to_collector=False)
    meters = Meters("policy", export.provider.get_meter("earvoice"))
    meters.record("earvoice.word.lag", 1234.0, "live")
    meters.count("earvoice.sessions.refused", 1, "SESSION_LIMIT")
    metrics_port, port = free_ports(2)
    export.listen("127.0.0.1", metrics_port)
    target = json.dumps([{"targets": [f"127.0.0.1:{metrics_port}"]}])
    (folder / "targets" / "policy.yml").write_text(target, encoding="utf8")
    with prometheus(folder, port, tmp_path / "data"):
        alerts = wait_for(port, 'ALERTS{alertstate="firing"}')
        lag = wait_for(port, "earvoice_word_lag_milliseconds_sum")
    assert lag[0]["metric"]["job"] == "earvoice-policy"
    assert lag[0]["metric"]["clock"] == "live"
    assert float(lag[0]["value"][1]) == 1234
    assert [alert["metric"]["alertname"] for alert in alerts] == ["EarvoiceSessionsRefused"]
    assert alerts[0]["metric"]["reason"] == "SESSION_LIMIT"


@contextmanager
def prometheus(folder, port, data):
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def wait_for(port: int, expression: str):
    """The samples of an expression, once there are any."""
    query = urllib.parse.urlencode({"query": expression})
    never = threading.Event()
    for _ in range(int(PATIENCE_S * 2)):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}") as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            found = []
        if found:
            return found
        never.wait(0.5)
    pytest.fail(f"Prometheus has no {expression} after {PATIENCE_S:g} s")
