"""The Kubernetes manifests, rendered as `kubectl apply -k` would have them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.deploy.tool import ROOT, output_of

K8S = ROOT / "deploy" / "k8s"
NAMESPACE = "earvoice-test"

Object = dict[str, Any]


@dataclass(frozen=True)
class Combination:
    """What somebody may put into an overlay."""

    components: tuple[str, ...] = ()
    second_model: bool = False

    def __str__(self) -> str:
        return "+".join(("base", *self.components, *(["second-model"] * self.second_model)))


def promised_combinations() -> Iterator[Combination]:
    """Any of the components with any; the metrics adapter asks the Prometheus of observability."""
    metrics = [(), ("observability",), ("observability", "metrics-adapter")]
    optional = [[(), (name,)] for name in ("envoy", "gateway", "mtls", "gpu")]
    for parts in itertools.product(*optional, metrics):
        for second_model in (False, True):
            yield Combination(tuple(itertools.chain(*parts)), second_model)


def everything() -> Combination:
    return max(promised_combinations(), key=lambda combination: len(str(combination)))


@cache
def render_overlay(name: str) -> tuple[Object, ...]:
    """One of our overlays; skips the test without kustomize."""
    return _build(K8S / "overlays" / name)


@cache
def render(combination: Combination) -> tuple[Object, ...]:
    """An overlay of a combination, written as the README says; skips the same."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copy(K8S / "overlays" / "prod" / "in-namespace.yaml", folder)
        transformer = folder / "in-namespace.yaml"
        text = transformer.read_text(encoding="utf8")
        transformer.write_text(text.replace("namespace: earvoice}", f"namespace: {NAMESPACE}}}"))
        resources = ["base", *(["second-model"] * combination.second_model)]
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "transformers": ["in-namespace.yaml"],
            "resources": [_relative(folder, K8S / name) for name in resources],
            "components": [
                _relative(folder, K8S / "components" / name) for name in combination.components
            ],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf8")
        return _build(folder)


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    return [item for item in objects if item["kind"] in kinds]


def name_of(item: Object) -> str:
    name: str = item["metadata"]["name"]
    return name


def pod_of(deployment: Object) -> Object:
    template: Object = deployment["spec"]["template"]
    return template


def container_of(deployment: Object) -> Object:
    (container,) = pod_of(deployment)["spec"]["containers"]
    return dict(container)


def selects(labels: dict[str, str], pod: Object) -> bool:
    """Whether a selector's labels are all among a pod's."""
    return labels.items() <= pod["metadata"]["labels"].items()


def _build(folder: Path) -> tuple[Object, ...]:
    # The loader in C: a dashboard is among them.
    return tuple(yaml.load_all(output_of(*_kustomize(), folder), yaml.CSafeLoader))


@cache
def _kustomize() -> tuple[str, ...]:
    for command in (("kustomize", "build"), ("kubectl", "kustomize")):
        if shutil.which(command[0]) is not None:
            version = subprocess.run([*command, "--help"], check=False, capture_output=True)
            if version.returncode == 0:
                return command
    pytest.skip("kustomize is not installed, nor a kubectl that has it: make test-tools says how")


def _relative(folder: Path, target: Path) -> str:
    # kustomize takes no absolute path.
    return os.path.relpath(target.resolve(), folder.resolve())
