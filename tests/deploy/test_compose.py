"""deploy/docker/compose.yml: what it says, and the three services run by it."""

import importlib.util
import os
import subprocess
import sys
import urllib.request
import uuid
from contextlib import contextmanager

import pytest
import yaml

from tests.deploy.container import IMAGES, Container, assert_confined, podman
from tests.deploy.manifest import K8S
from tests.deploy.tool import OBSERVABILITY, ROOT, free_ports
from tests.deploy.translation import translate_demo

DOCKER = ROOT / "deploy" / "docker"
SERVICES = ("encoder", "decoder", "policy", "gateway")
FILES = (OBSERVABILITY / "compose.yml", DOCKER / "compose.yml")


@pytest.mark.images
@pytest.mark.timeout(1800)
def test_the_services_run_by_it_translate():
    """Without the others' images, which no test fetches."""
    if importlib.util.find_spec("podman_compose") is None:
        pytest.skip("podman-compose is not installed: make check-images installs it")
    port, http_port = free_ports(2)
    with composed(port, http_port) as containers:
        for container in containers.values():
            container.wait_until_healthy()
            assert_confined(container)
        assert translate_demo(f"127.0.0.1:{port}")
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz") as answer:
            assert answer.read() == b"ready"


@contextmanager
def composed(port, http_port):
    project = f"earvoice{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "podman_compose", "--project-name", project]
    command += [word for file in FILES for word in ("--file", str(file))]
    environment = {**os.environ, "EARVOICE_PORT": str(port), "EARVOICE_HTTP_PORT": str(http_port)}
    subprocess.run([*command, "up", "--detach", *SERVICES], check=True, env=environment)
    try:
        yield {name: Container(name_in(project, name)) for name in SERVICES}
    finally:
        subprocess.run([*command, "down", "--volumes"], check=True, env=environment)


def name_in(project, service):
    labels = (
        f"label=com.docker.compose.project={project}",
        f"label=com.docker.compose.service={service}",
    )
    return podman("ps", "--format={{.Names}}", *(f"--filter={label}" for label in labels))


def test_images_and_settings_agree():
    """compose.yml confines what it runs, and every port is the one that it is known by."""
    compose = yaml.safe_load((DOCKER / "compose.yml").read_text(encoding="utf8"))["services"]
    for name, port in (("policy", 9461), ("encoder", 9462), ("decoder", 9463), ("gateway", 9464)):
        service = compose[name]
        assert service["image"] == IMAGES.format(name)
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        (target,) = yaml.safe_load((DOCKER / "targets" / f"{name}.yml").read_text(encoding="utf8"))
        assert target["targets"] == [f"{name}:{port}"]
        assert service["environment"][f"EARVOICE_{name.upper()}_METRICS_PORT"] == str(port)
    dev = (K8S / "overlays" / "dev" / "kustomization.yaml").read_text(encoding="utf8")
    for entry in yaml.safe_load(dev)["images"]:
        service = entry["name"].removeprefix("earvoice-")
        assert f"{entry['newName']}:{entry['newTag']}" == IMAGES.format(service)
