"""The NetworkPolicies: every connection that is needed, and no other."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest

from tests.deploy.manifest import (
    Combination,
    Object,
    container_of,
    name_of,
    of_kind,
    pod_of,
    render,
    render_overlay,
    selects,
)

Direction = Literal["ingress", "egress"]


def lets_through(objects: tuple[Object, ...], source: Object, target: Object, port: int) -> bool:
    """Whether a connection from one Deployment's pods to a port of another's comes about.

    Both ends must allow it. An end that no policy selects allows everything.
    """
    policies = of_kind(objects, "NetworkPolicy")
    return _allows(policies, "egress", source, target, port) and _allows(
        policies, "ingress", target, source, port
    )


def lets_strangers_in(objects: tuple[Object, ...], target: Object, port: int) -> bool:
    policies = _selecting(of_kind(objects, "NetworkPolicy"), "Ingress", target)
    rules = [rule for policy in policies for rule in policy["spec"].get("ingress", ())]
    return not policies or any(
        "from" not in rule and _has_port(rule, target, port) for rule in rules
    )


def _allows(
    policies: list[Object], direction: Direction, own: Object, peer: Object, port: int
) -> bool:
    """Whether the policies of one end let the other be its peer."""
    selecting = _selecting(policies, direction.capitalize(), own)
    served = peer if direction == "egress" else own
    key = "to" if direction == "egress" else "from"
    rules = [rule for policy in selecting for rule in policy["spec"].get(direction, ())]
    return not selecting or any(
        _has_port(rule, served, port)
        and (key not in rule or any(_is_peer(place, peer) for place in rule[key]))
        for rule in rules
    )


def _selecting(policies: list[Object], kind: str, deployment: Object) -> list[Object]:
    return [
        policy
        for policy in policies
        if kind in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"].get("matchLabels", {}), pod_of(deployment))
    ]


def _has_port(rule: dict[str, Any], served: Object, port: int) -> bool:
    named = {item["name"]: item["containerPort"] for item in container_of(served)["ports"]}
    return any(named.get(item["port"], item["port"]) == port for item in rule["ports"])


def _is_peer(place: dict[str, Any], peer: Object) -> bool:
    # Another namespace's pods are none of ours.
    if "namespaceSelector" in place:
        return False
    return selects(place["podSelector"]["matchLabels"], pod_of(peer))


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
