"""The rendered Deployments, run by podman: settings, rights and stopping, without a cluster."""

import base64

import pytest
import yaml

from tests.deploy.container import Container, assert_confined, network, podman
from tests.deploy.manifest import container_of, name_of, of_kind, pod_of, render_overlay
from tests.deploy.tool import free_port
from tests.deploy.translation import translate_demo

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]

HEALTH_PORTS = {"encoder": 50062, "decoder": 50063, "policy": 50061}
# What only a cluster's node does.
NODE_S_OWN = ("startupProbe", "livenessProbe", "readinessProbe", "lifecycle")
CLUSTER_S_OWN = ("topologySpreadConstraints", "serviceAccountName", "enableServiceLinks")


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The containers of overlays/dev by their services, and where the public API is.

    At the end each drains within its pod's own grace and ends with 0. podman knows one pod by a
    name, so this cannot be a test beside those that need them running.
    """
    objects = render_overlay("dev")
    port = free_port()
    file = tmp_path_factory.mktemp("play") / "dev.yaml"
    pods = [playable(item, objects, port) for item in of_kind(objects, "Deployment")]
    file.write_text(yaml.safe_dump_all(pods), encoding="utf8")
    with network() as net:
        # What a run that was killed has left has the same names.
        podman("kube", "play", "--replace", "--network", net, str(file))
        try:
            containers = {
                service: Container(
                    f"earvoice-{service}-{service}",
                    *("python", "-m", "earvoice.runtime.probe", f"127.0.0.1:{health_port}"),
                )
                for service, health_port in HEALTH_PORTS.items()
            }
            for running in containers.values():
                running.wait_until_healthy()
            yield containers, f"127.0.0.1:{port}"
            codes = [containers[service].stop() for service in ("policy", "encoder", "decoder")]
            assert codes == [0, 0, 0]
        finally:
            podman("kube", "down", str(file))


def playable(deployment, objects, port):
    """A Deployment's pod as podman 4 takes it.

    It knows no Services, but a pod is found by its name: it gets that of its Deployment, which is
    its Service's too. It knows no Secrets of the same file: their values stand in the variables.
    Probes and hooks are the node's work, and it makes none.
    """
    (secret,) = of_kind(objects, "Secret")
    container, spec = container_of(deployment), pod_of(deployment)["spec"]
    for name in NODE_S_OWN:
        del container[name]
    for variable in container["env"]:
        source = variable.pop("valueFrom", None)
        if source is not None:
            assert source["secretKeyRef"]["name"] == name_of(secret)
            encoded = secret["data"][source["secretKeyRef"]["key"]]
            variable["value"] = base64.b64decode(encoded).decode()
    if container["name"] == "policy":
        container["ports"][0] |= {"hostPort": port, "hostIP": "127.0.0.1"}
    kept = {key: value for key, value in spec.items() if key not in CLUSTER_S_OWN}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**pod_of(deployment)["metadata"], "name": name_of(deployment)},
        "spec": {**kept, "containers": [container]},
    }


def test_they_translate(played):
    """A real recording through the pods: settings, secrets and names are right."""
    _, address = played
    assert translate_demo(address)


@pytest.mark.parametrize("service", HEALTH_PORTS)
def test_they_have_no_rights(played, service):
    """The security contexts do what they say."""
    containers, _ = played
    assert_confined(containers[service])


def test_the_memory_is_limited(played):
    """By the number in the manifest; the service runs in less."""
    containers, _ = played
    for item in of_kind(render_overlay("dev"), "Deployment"):
        wanted = container_of(item)["resources"]["limits"]["memory"]
        name = containers[container_of(item)["name"]].name
        limit = int(podman("inspect", "--format={{.HostConfig.Memory}}", name))
        assert limit == int(wanted.removesuffix("Gi")) << 30
