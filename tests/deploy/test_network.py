"""The NetworkPolicies: every connection that is needed, and no other."""

import itertools

import pytest

from tests.deploy.manifest import (
    Combination,
    container_of,
    name_of,
    of_kind,
    render,
    render_overlay,
)
from tests.deploy.network_rule import lets_strangers_in, lets_through

ENGINES = [("policy", "encoder", 50052), ("policy", "decoder", 50053)]
SCRAPES = [
    ("prometheus", "policy", 9461),
    ("prometheus", "encoder", 9462),
    ("prometheus", "decoder", 9463),
]
SPANS = [(name, "collector", 4317) for name in ("policy", "encoder", "decoder", "gateway")]
NEEDED = {
    "base": {*ENGINES},
    "prod": {
        *ENGINES,
        *SCRAPES,
        *SPANS,
        ("envoy", "policy", 50051),
        ("gateway", "envoy", 50051),
        ("prometheus", "gateway", 9464),
        ("prometheus", "envoy", 9902),
        ("collector", "jaeger", 4317),
        ("metrics-adapter", "prometheus", 9090),
    },
}


@pytest.fixture(params=["base", "prod"])
def rendered(request):
    objects = render(Combination()) if request.param == "base" else render_overlay("prod")
    return request.param, objects


def test_exactly_the_needed_connections_come_about(rendered):
    """Between pods of ours, each way, on every port. Probes come from the node."""
    name, objects = rendered
    deployments = {short_name(item): item for item in of_kind(objects, "Deployment")}
    found = {
        (source, target, port)
        for source, target in itertools.permutations(deployments, 2)
        for port in ports_of(deployments[target])
        if lets_through(objects, deployments[source], deployments[target], port)
    }
    # The API server is no pod: who asks it may ask anybody on its ports.
    assert found - {("prometheus", "metrics-adapter", 6443)} == NEEDED[name]


def test_strangers_find_the_doors_alone(rendered):
    """The policy service, or Envoy before it; the gateway; and the adapter, for the API server."""
    name, objects = rendered
    doors = {
        (short_name(item), port)
        for item in of_kind(objects, "Deployment")
        for port in ports_of(item)
        if lets_strangers_in(objects, item, port)
    }
    assert (
        doors
        == {
            "base": {("policy", 50051)},
            "prod": {("envoy", 50051), ("gateway", 8080), ("metrics-adapter", 6443)},
        }[name]
    )


def short_name(deployment):
    """A Deployment's name without the prefix that all have."""
    return name_of(deployment).removeprefix("earvoice-")


def ports_of(deployment):
    return [port["containerPort"] for port in container_of(deployment)["ports"]]
