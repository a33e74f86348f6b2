"""Every promised combination of the Kubernetes manifests renders, and is what the API knows."""

import json
from dataclasses import replace
from functools import cache

import kubernetes_validate
import pytest

from tests.deploy.manifest import (
    NAMESPACE,
    container_of,
    everything,
    name_of,
    of_kind,
    promised_combinations,
    render,
    render_overlay,
)

# The first that has all we use, and the newest whose schemas are there.
VERSIONS = ("1.30", "1.34", "1.37")
# Objects of the cluster, and the one that lets the adapter read how callers are checked.
OUTSIDE = {"APIService", "ClusterRole", "ClusterRoleBinding", "Namespace"}

# A megabyte of schemas, which it would read anew for every object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


@pytest.mark.parametrize("combination", list(promised_combinations()), ids=str)
def test_every_combination_is_valid(combination):
    """No misspelt field, no wrong type, no kind that Kubernetes does not have."""
    objects = render(combination)
    names = [(item["kind"], name_of(item)) for item in objects]
    assert len(set(names)) == len(names)
    for item in objects:
        validate(json.dumps(item))
        if item["kind"] not in OUTSIDE:
            expected = "kube-system" if name_of(item).endswith("-authentication") else NAMESPACE
            assert item["metadata"]["namespace"] == expected, name_of(item)


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_every_overlay_is_valid(overlay):
    """And says of every image which version it is."""
    objects = render_overlay(overlay)
    for item in objects:
        validate(json.dumps(item))
    for deployment in of_kind(objects, "Deployment"):
        image = container_of(deployment)["image"]
        assert ":" in image.rpartition("/")[2]
        assert not image.endswith(":latest")


def test_the_order_of_components_is_free():
    """But that `envoy` and `gateway` come before `mtls`, the same objects come of any."""
    texts = []
    for name in ("one", "other"):
        components = everything().components
        if name == "other":
            components = (*components[3:], *components[:3])
        objects = render(replace(everything(), components=components))
        texts.append(sorted(json.dumps(item, sort_keys=True) for item in objects))
    assert everything().components[:3] == ("envoy", "gateway", "mtls")
    assert len(texts[0]) == len(texts[1])
    differing = {json.loads(item)["kind"] for item in set(texts[0]) ^ set(texts[1])}
    # Variables stand in another order.
    assert differing <= {"Deployment"}


def test_a_misspelt_field_is_found():
    """The check itself can fail."""
    deployment = dict(of_kind(render_overlay("dev"), "Deployment")[0])
    deployment["spec"] = {**deployment["spec"], "minReadySecond": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(json.dumps(deployment))


@cache
def validate(item: str) -> None:
    """Hold an object against the schemas; most are the same in many combinations."""
    for version in VERSIONS:
        kubernetes_validate.validate(json.loads(item), version, strict=True)
