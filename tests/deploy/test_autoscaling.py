"""The metrics that autoscaling asks for: from the services' schema through Prometheus."""

import json
import re

import yaml

from earvoice.telemetry.schema import METRICS
from tests.deploy.manifest import K8S
from tests.deploy.metric_name import names_in, prometheus_names
from tests.deploy.tool import output_of, program

RULES = K8S / "components" / "metrics-adapter" / "rules.yaml"
SCRAPING = K8S / "components" / "observability" / "prometheus.yml"


def queries():
    """Each metric's query, as the adapter asks it for one pod."""
    for rule in yaml.safe_load(RULES.read_text(encoding="utf8"))["rules"]:
        series = re.match(r"\w+", rule["seriesQuery"])[0]
        filled = {
            "Series": series,
            "LabelMatchers": 'namespace="earvoice",pod="a"',
            "GroupBy": "pod",
        }
        query = rule["metricsQuery"]
        for name, text in filled.items():
            query = query.replace(f"<<.{name}>>", text)
        yield rule["name"]["as"], series, query


def test_the_adapter_reads_metrics_that_exist():
    """Under the names that the schema's metrics get in Prometheus."""
    known = prometheus_names(METRICS)
    for _, series, query in queries():
        assert series in known
        assert names_in(query) <= known, query


def test_a_pod_is_scraped_under_the_names_that_are_asked_for(tmp_path):
    """By promtool, with a pod as Kubernetes would tell of it: job, namespace and pod are right."""
    scraping = yaml.safe_load(SCRAPING.read_text(encoding="utf8"))
    (job,) = scraping["scrape_configs"]
    # Debian's Prometheus is built without Kubernetes.
    assert job.pop("kubernetes_sd_configs") == [
        {"role": "pod", "namespaces": {"own_namespace": True}}
    ]
    job["static_configs"] = [
        {"targets": [f"10.0.0.1:{port}"], "labels": pod_labels(port)}
        for port in ("grpc", "metrics")
    ]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(scraping), encoding="utf8")
    command = (program("promtool"), "check", "service-discovery")
    output = output_of(*command, tmp_path / "prometheus.yml", "earvoice")
    found = [target["labels"] for target in json.loads(output[output.index("[") :])]
    assert [labels for labels in found if labels] == [
        {
            "__address__": "10.0.0.1:metrics",
            "__metrics_path__": "/metrics",
            "__scheme__": "http",
            "__scrape_interval__": "15s",
            "__scrape_timeout__": "10s",
            "instance": "earvoice-encoder-1",
            "job": "earvoice-encoder",
            "namespace": "prod",
            "pod": "earvoice-encoder-1",
        }
    ]


def test_the_adapter_counts_as_the_autoscaler_needs_it(tmp_path):
    """By promtool: the last two minutes, sessions over their limit, and none of an idle pod."""
    by_name = {name: query for name, _, query in queries()}
    utilisation = by_name["earvoice_sessions_utilisation"]
    series = {
        'earvoice_engine_busy_ratio{namespace="earvoice",pod="a"}': "1x8 0.5x9",
        'earvoice_sessions_active{namespace="earvoice",pod="a"}': "6x17",
        'earvoice_sessions_limit{namespace="earvoice",pod="a"}': "8x17",
        'earvoice_sessions_limit{namespace="earvoice",pod="idle"}': "8x17",
    }
    test = {
        "interval": "15s",
        "input_series": [
            {"series": name, "values": readings(values)} for name, values in series.items()
        ],
        "promql_expr_test": [
            expect(by_name["earvoice_engine_busy_ratio"], "a", 0.5),
            expect(utilisation, "a", 0.75),
            expect(utilisation.replace('pod="a"', 'pod="idle"'), "idle", 0),
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}), encoding="utf8")
    assert "SUCCESS" in output_of(program("promtool"), "test", "rules", path)


def pod_labels(port_name):
    """What Kubernetes' discovery says of one port of a pod."""
    meta = "__meta_kubernetes_"
    return {
        f"{meta}namespace": "prod",
        f"{meta}pod_name": "earvoice-encoder-1",
        f"{meta}pod_phase": "Running",
        f"{meta}pod_container_port_name": port_name,
        f"{meta}pod_label_app_kubernetes_io_name": "earvoice",
        f"{meta}pod_label_app_kubernetes_io_component": "encoder",
    }


def readings(text):
    """`1x8 0.5x9`, eight readings and nine, in promtool's own words."""
    parts = (part.split("x") for part in text.split())
    return " ".join(" ".join([value] * int(count)) for value, count in parts)


def expect(query, pod, value):
    """One expression of a promtool test, after all readings."""
    return {
        "expr": query,
        "eval_time": "4m",
        "exp_samples": [{"labels": f'{{pod="{pod}"}}', "value": value}],
    }
