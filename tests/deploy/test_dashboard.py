"""The dashboard, held against Grafana's schema, Prometheus' language and our metrics."""

import json
import shutil

import pytest
import yaml

from earvoice.telemetry.schema import METRICS
from tests.deploy.metric_name import names_in, prometheus_names
from tests.deploy.tool import OBSERVABILITY, node_package, output_of, program

GRAFANA = OBSERVABILITY / "grafana"
DASHBOARD = GRAFANA / "dashboards" / "earvoice.json"
RULES = OBSERVABILITY / "prometheus" / "rules" / "earvoice.yml"


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(DASHBOARD.read_text(encoding="utf8"))


def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def recorded():
    groups = yaml.safe_load(RULES.read_text(encoding="utf8"))["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def test_panels_read_metrics_that_exist(dashboard):
    """Of the services, or recorded by our rules."""
    known = prometheus_names(METRICS) | recorded()
    for expression in expressions(dashboard):
        found = names_in(expression)
        assert found, expression
        assert found <= known, expression


def test_every_metric_is_shown(dashboard):
    """What nobody looks at need not be exported."""
    shown = {name for expression in expressions(dashboard) for name in names_in(expression)}
    rules = RULES.read_text(encoding="utf8")
    for metric in METRICS:
        names = prometheus_names([metric])
        assert names & shown or any(name in rules for name in names), metric.name


def test_panels_do_not_overlap(dashboard):
    """Each has its place on the grid of 24 columns."""
    taken = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_every_panel_asks_the_chosen_prometheus(dashboard):
    """No data source of one installation is written into it."""
    sources = {panel["datasource"]["uid"] for panel in dashboard["panels"] if "targets" in panel}
    assert sources == {"${datasource}"}


def test_prometheus_understands_every_expression(dashboard, tmp_path):
    """As rules of a throw-away file, by promtool."""
    promtool = program("promtool")
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions(dashboard))
    ]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf8")
    assert f"{len(rules)} rules found" in output_of(promtool, "check", "rules", path)


def test_grafanas_schema_takes_the_dashboard(tmp_path):
    """By the TypeScript compiler, with Grafana's own types."""
    node_package("@grafana/schema")
    compiler = node_package("typescript") / "bin" / "tsc"
    (tmp_path / "node_modules").symlink_to(compiler.parents[2])
    shutil.copy(GRAFANA / "dashboard_type.ts", tmp_path)
    (tmp_path / "dashboard.ts").write_text(
        'import type { DashboardFile } from "./dashboard_type.js";\n'
        f"export const dashboard: DashboardFile = {DASHBOARD.read_text(encoding='utf8')};\n",
        encoding="utf8",
    )
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext")
    output_of(program("node"), compiler, *options, "dashboard.ts", folder=tmp_path)
