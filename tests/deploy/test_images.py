"""The container images: confined as in production, and they translate."""

import json
from collections.abc import Iterator

import pytest
from packaging.utils import canonicalize_name

from tests.deploy.container import (
    IMAGES,
    Container,
    assert_confined,
    container,
    network,
    podman,
)
from tests.deploy.test_locks import locked
from tests.deploy.translation import translate_demo

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]

# Told words are compared: those of fp32, as all tests have them (tests/conftest.py).
ENGINE = {"ALLOW_UNAUTHENTICATED": "true", "PRECISION": "fp32"}


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Container]]:
    """All three; at the end each drains and ends with 0, in the order of a roll-out."""
    with (
        network() as net,
        container("encoder", f"--network={net}:alias=encoder", **ENGINE) as encoder,
        container("decoder", f"--network={net}:alias=decoder", **ENGINE) as decoder,
        container(
            "policy",
            f"--network={net}:alias=policy",
            "--publish=127.0.0.1::50051",
            ENCODER_TARGET="dns:///encoder:50052",
            DECODER_TARGET="dns:///decoder:50053",
        ) as policy,
    ):
        running = {"encoder": encoder, "decoder": decoder, "policy": policy}
        for service in running.values():
            service.wait_until_healthy()
        yield running
        assert [running[name].stop() for name in ("policy", "encoder", "decoder")] == [0, 0, 0]


def test_they_translate(services):
    """A real recording through three containers gives what three processes give."""
    in_containers = translate_demo(services["policy"].address(50051))
    assert in_containers
    assert in_containers == translate_demo()


@pytest.mark.parametrize("service", ["policy", "encoder", "decoder"])
def test_it_has_no_rights(services, service):
    """As compose.yml and the Deployments want it."""
    assert_confined(services[service])


@pytest.mark.parametrize("service", ["policy", "encoder"])
def test_it_stops_while_it_starts(service):
    """The signal comes before anything could have asked for it: as PID 1 it would be lost."""
    with container(service, HOST="127.0.0.1") as starting:
        podman("kill", "--signal=TERM", starting.name)
        # By the signal, or in good order if the program was that far.
        assert starting.exit_code() in {0, 143}


def test_an_engine_open_to_strangers_does_not_start():
    """Nobody who only runs the image has a service that anybody may use."""
    with container("encoder") as encoder:
        assert encoder.exit_code() == 2
        assert "ALLOW_UNAUTHENTICATED" in encoder.log()


def test_the_policy_image_is_light():
    """Neither torch nor numpy, nor a model, nor a pip to install them with."""
    look = (
        "import importlib.util as u, pathlib, earvoice.policy as p\n"
        "print([n for n in ('torch', 'numpy', 'pip') if u.find_spec(n)],"
        "(pathlib.Path(p.__file__).parents[1] / 'shipped').exists())"
    )
    image = IMAGES.format("policy")
    assert podman("run", "--rm", "--entrypoint=python", image, "-c", look) == "[] False"


@pytest.mark.parametrize("service", ["policy", "encoder", "gateway"])
def test_its_bill_of_materials_is_what_is_locked(service):
    """CycloneDX: EarVoice and every locked package, in its locked version."""
    image = IMAGES.format(service)
    told = json.loads(
        podman("run", "--rm", "--entrypoint=cat", image, "/opt/earvoice/sbom.cdx.json")
    )
    assert told["bomFormat"] == "CycloneDX"
    listed = {canonicalize_name(item["name"]): item["version"] for item in told["components"]}
    assert "earvoice" in listed
    lock = "engine" if service == "encoder" else service
    assert listed == {"earvoice": listed["earvoice"], **locked(lock)}
