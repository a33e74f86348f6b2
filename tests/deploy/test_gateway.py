"""The gateway's manifests agree with its settings, in every kind of overlay that has it."""

import json

import pytest
import yaml

from earvoice.gateway.settings import GatewaySettings
from earvoice.runtime.settings import load_settings
from tests.deploy.manifest import (
    K8S,
    Combination,
    container_of,
    everything,
    name_of,
    of_kind,
    pod_of,
    render,
    render_overlay,
    selects,
)
from tests.deploy.test_manifest_meaning import STOPPING_S
from tests.deploy.test_manifests import validate

INGRESS = K8S / "components" / "gateway" / "ingress.example.yaml"


@pytest.fixture(params=["gateway", "everything", "prod"])
def objects(request):
    """The gateway alone before the services, and with TLS."""
    if request.param == "prod":
        return render_overlay("prod")
    return render(everything() if request.param == "everything" else Combination(("gateway",)))


@pytest.fixture
def deployment(objects):
    return next(
        item for item in of_kind(objects, "Deployment") if name_of(item) == "earvoice-gateway"
    )


@pytest.fixture
def settings(deployment, monkeypatch):
    """The settings that a pod's environment makes."""
    for variable in container_of(deployment)["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    return load_settings(GatewaySettings)


def test_settings_and_ports_agree(deployment, settings):
    """Every variable is a setting with an allowed value, and every port is the gateway's."""
    ports = {port["name"]: port["containerPort"] for port in container_of(deployment)["ports"]}
    assert ports == {"http": settings.port, "metrics": settings.metrics_port}
    assert settings.host == "0.0.0.0"


def test_probes_ask_as_the_gateway_listens(deployment, settings):
    """Ready follows the policy service, alive does not; by TLS where there is TLS."""
    container = container_of(deployment)
    scheme = {"scheme": "HTTPS"} if settings.tls_certificate_file else {}
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": "http", **scheme}


def test_a_pod_may_drain_to_the_end(deployment, settings):
    """The kill comes after preStop, the whole grace, and the time to stop."""
    asleep_s = container_of(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
    longest_s = pod_of(deployment)["spec"]["terminationGracePeriodSeconds"]
    assert longest_s >= asleep_s + settings.drain_grace_ms / 1000 + STOPPING_S


def test_it_calls_what_clients_call(objects, settings):
    """By TLS exactly where that has TLS."""
    name, port = settings.server.split(":")
    (service,) = (item for item in of_kind(objects, "Service") if name_of(item) == name)
    (entry,) = service["spec"]["ports"]
    assert entry["port"] == int(port)
    assert (entry["appProtocol"] == "https") == (settings.server_tls is not None)


def test_the_ingress_leads_to_its_service(objects, deployment):
    """And is what Kubernetes knows."""
    text = INGRESS.read_text(encoding="utf8")
    validate(json.dumps(yaml.safe_load(text)))
    (rule,) = yaml.safe_load(text)["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    wanted = path["backend"]["service"]
    (service,) = (item for item in of_kind(objects, "Service") if name_of(item) == wanted["name"])
    assert wanted["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert selects(service["spec"]["selector"], pod_of(deployment))
