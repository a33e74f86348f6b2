"""What NetworkPolicies let through, as a cluster's network would decide it."""

from __future__ import annotations

from typing import Any, Literal

from tests.deploy.manifest import Object, container_of, of_kind, pod_of, selects

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
